import { parseExactly, excessOf, SHORT_TEXT, sizeOf } from './json-parse.ts'
import { INVALID_REQUEST, isObject, PARSE_ERROR } from './jsonrpc.ts'
import {
  CLIENT_CAPABILITIES_KEY,
  CLIENT_INFO_KEY,
  LOG_LEVEL_KEY,
  PROTOCOL_VERSION_KEY,
  SUBSCRIPTION_ID_KEY,
} from './versions.ts'

/**
 * Reads JSON from peers, and refuses text that another parser may read differently. The gateway passes texts on
 * unchanged, and parsers disagree: of two equal keys, some take the first and some the last. Some parsers do not
 * distinguish `name` from `Name`. Without the refusal, the gateway could check one meaning of a text and the server
 * execute another.
 */

/** Deepest allowed nesting of objects and arrays. Recursive code can walk such a value without exhausting the stack. */
export const MAX_DEPTH = 128

/** A JSON value, or the JSON-RPC error that explains the refusal. */
export type ReadJson =
  | { readonly ok: true; readonly value: unknown }
  | { readonly ok: false; readonly code: number; readonly message: string; readonly value?: unknown }

/**
 * Reads JSON of at most 128 levels, 50,000 members and 100,000 values. Refuses duplicate keys, and keys that a lax
 * parser would take for a protocol key.
 */
export function readJson(text: string): ReadJson {
  // Refuses a text before parsing if parsing would take long. A short text cannot exceed the limits on members and
  // values.
  if (text.length > SHORT_TEXT) {
    const size = sizeOf(text, MAX_DEPTH)
    if (size.depth > MAX_DEPTH) return refused(TOO_DEEP)
    const excess = excessOf(size)
    if (excess !== undefined) return refused(`Invalid Request: ${excess}`)
  }
  let value: unknown
  try {
    value = parseExactly(text)
  } catch {
    return { ok: false, code: PARSE_ERROR, message: 'Parse error: the body is not JSON' }
  }
  const members = isNested(value) ? membersOf(value, 1) : 0
  if (Number.isNaN(members)) return refused(TOO_DEEP, value)
  // The parser keeps only one of equal keys. If the text has as many colons as the value has members, no key is
  // repeated.
  if (members !== colonsIn(text) && members !== sizeOf(text, MAX_DEPTH).members)
    return refused('Invalid Request: a key occurs twice in one object', value)
  const variant = variantIn(value)
  if (variant !== undefined)
    return refused(
      `Invalid Request: the key ${JSON.stringify(variant.slice(0, 64))} could be taken for another`,
      value,
    )
  return { ok: true, value }
}

const TOO_DEEP = `Invalid Request: objects and arrays are nested more than ${MAX_DEPTH} deep`

function refused(message: string, value?: unknown): ReadJson {
  return { ok: false, code: INVALID_REQUEST, message, value }
}

const isNested = (value: unknown): value is object => typeof value === 'object' && value !== null

function colonsIn(text: string): number {
  let colons = 0
  for (let at = text.indexOf(':'); at !== -1; at = text.indexOf(':', at + 1)) colons++
  return colons
}

/**
 * Counts the members of all objects in a value; NaN when nested too deeply. `depth`: the nesting level of the value
 * itself, from 1.
 */
function membersOf(value: object, depth: number): number {
  if (depth > MAX_DEPTH) return NaN
  let members = 0
  if (Array.isArray(value)) {
    for (const item of value as unknown[]) if (isNested(item)) members += membersOf(item, depth + 1)
    return members
  }
  const fields = value as Readonly<Record<string, unknown>>
  for (const key in fields) {
    members++
    const item = fields[key]
    if (isNested(item)) members += membersOf(item, depth + 1)
  }
  return members
}

/** Letters that common parsers take for ASCII letters: the Kelvin sign, the long s, and the two Turkish i. */
const foreign: Readonly<Record<string, string>> = {
  '\u212a': 'k',
  '\u017f': 's',
  '\u0130': 'i',
  '\u0131': 'i',
}

/** Returns a key as the least exact parser reads keys: in lower case, and up to a NUL. */
function folded(key: string): string {
  const ascii = /[\0\u212a\u017f\u0130\u0131]/.test(key)
    ? key.replace(/\0.*$/s, '').replace(/[\u212a\u017f\u0130\u0131]/g, (letter) => foreign[letter] ?? letter)
    : key
  return ascii.toLowerCase()
}

/** Keys that decide how the gateway handles a message: maps the folded spelling of each key to its exact spelling. */
type Keys = ReadonlyMap<string, string>

const keys = (...names: readonly string[]): Keys => new Map(names.map((name) => [folded(name), name]))

const ofMessage = keys('jsonrpc', 'id', 'method', 'params', 'result', 'error')

const ofParams = keys(
  '_meta',
  'arguments',
  'capabilities',
  'clientInfo',
  'cursor',
  'inputResponses',
  'level',
  'name',
  'notifications',
  'progressToken',
  'protocolVersion',
  'ref',
  'requestId',
  'requestState',
  'task',
  'taskId',
  'uri',
)

/** The keys of `_meta` used by the gateway. */
export const decidingMeta = [
  'progressToken',
  'baggage',
  'traceparent',
  'tracestate',
  'dev.breakwater/arm',
  'dev.breakwater/deadline-ms',
  'dev.breakwater/error',
  'dev.breakwater/idempotency-key',
  'dev.breakwater/intent',
  'dev.breakwater/outcome',
  'dev.breakwater/partial',
  'dev.breakwater/step',
  'io.modelcontextprotocol/related-task',
  CLIENT_CAPABILITIES_KEY,
  CLIENT_INFO_KEY,
  LOG_LEVEL_KEY,
  PROTOCOL_VERSION_KEY,
  SUBSCRIPTION_ID_KEY,
] as const

const ofMeta = keys(...decidingMeta)
const ofReference = keys('type', 'name', 'uri')

/** The exact spellings of all these keys: a key in this set needs no further check. */
const exact: ReadonlySet<string> = new Set(
  [ofMessage, ofParams, ofMeta, ofReference].flatMap((known) => [...known.values()]),
)

/**
 * Returns the first key, in a message or a batch, that a lax parser would take for a protocol key; undefined if there
 * is none.
 */
function variantIn(value: unknown): string | undefined {
  if (!Array.isArray(value)) return isObject(value) ? variantOf(value) : undefined
  for (const message of value as unknown[]) {
    const variant = isObject(message) ? variantOf(message) : undefined
    if (variant !== undefined) return variant
  }
  return undefined
}

function variantOf(message: Readonly<Record<string, unknown>>): string | undefined {
  const { params } = message
  const variant = variantAmong(ofMessage, message)
  if (variant !== undefined || !isObject(params)) return variant
  const { _meta: meta, ref } = params
  return (
    variantAmong(ofParams, params) ??
    (isObject(meta) ? variantAmong(ofMeta, meta) : undefined) ??
    (isObject(ref) ? variantAmong(ofReference, ref) : undefined)
  )
}

function variantAmong(known: Keys, fields: Readonly<Record<string, unknown>>): string | undefined {
  for (const key in fields) {
    // Most keys are keys of the protocol, spelt correctly.
    if (exact.has(key)) continue
    const meant = known.get(folded(key))
    if (meant !== undefined && meant !== key) return key
  }
  return undefined
}
