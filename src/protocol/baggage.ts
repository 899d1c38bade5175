import { removing } from './json-span.ts'
import { isObject } from './jsonrpc.ts'
import { edited } from './large-message.ts'
import { metaOf } from './meta.ts'

/** The key in `_meta`, and the name of the header, for W3C Baggage: https://www.w3.org/TR/baggage/ */
const KEY = 'baggage'

/** Longest baggage that W3C requires everybody to pass on, in bytes. Longer baggage is not read. */
const MOST_BYTES = 8_192

/** Longest value that is read, in bytes after decoding. */
const MOST_VALUE_BYTES = 256

interface Carrier {
  readonly message: { readonly value: Readonly<Record<string, unknown>> }
  /** All headers of the agent's request, lower case. */
  readonly inbound: Readonly<Record<string, string | string[] | undefined>>
}

/**
 * Returns the values of `keys` from the baggage of a call; undefined without baggage. A value in `_meta` wins over a
 * value in the header. Anybody can write baggage, so the values only label calls and grant no rights.
 */
export function baggageOf(
  { message, inbound }: Carrier,
  keys: ReadonlySet<string>,
): ReadonlyMap<string, string> | undefined {
  const own = metaOf(message.value, 'params', KEY)
  if (own === undefined && inbound[KEY] === undefined) return undefined
  const found = new Map<string, string>()
  for (const text of [own, inbound[KEY]]) read(text, keys, found)
  return found
}

/** Parses `key=value;property,key=value` with percent-encoded values. The first value of a key counts. */
function read(text: unknown, keys: ReadonlySet<string>, found: Map<string, string>): void {
  if (typeof text !== 'string' || text.length > MOST_BYTES || Buffer.byteLength(text) > MOST_BYTES) return
  for (const entry of text.split(',')) {
    const member = entry.split(';', 1)[0]!
    // A value may hold more equals signs, as base64 does.
    const at = member.indexOf('=')
    const key = member.slice(0, Math.max(0, at)).trim()
    if (!keys.has(key) || found.has(key)) continue
    const said = decoded(member.slice(at + 1).trim())
    if (said !== undefined && said !== '' && Buffer.byteLength(said) <= MOST_VALUE_BYTES) found.set(key, said)
  }
}

function decoded(text: string): string | undefined {
  try {
    return decodeURIComponent(text)
  } catch {
    return undefined
  }
}

interface Message {
  readonly text: string
  readonly value: Readonly<Record<string, unknown>>
}

const PATH = ['params', '_meta', KEY] as const

/**
 * Returns the message without its baggage; unchanged if it has none. Also removes duplicate `baggage` keys, because a
 * server may read any duplicate.
 */
export function withoutBaggage<M extends Message>(message: M): M {
  const { value } = message
  const { params } = value
  if (!isObject(params) || !isObject(params._meta) || !(KEY in params._meta)) return message
  const { [KEY]: _, ...meta } = params._meta
  const bare = { ...value, params: { ...params, _meta: meta } }
  return edited(message, (text) => removing(text, PATH), bare)
}
