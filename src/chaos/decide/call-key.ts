import type { Call, CallRecord } from '../../mesh/call.ts'
import { paramsOf } from '../../protocol/jsonrpc.ts'
import { canonicalJson } from '../../protocol/canonical-json.ts'
import { metaOf } from '../../protocol/meta.ts'
import { digest, joined } from './digest.ts'
import { Recent } from '../../units/recent.ts'

/** Where an agent says which of its tasks a call belongs to. */
export const INTENT_KEY = 'dev.breakwater/intent'

/** Where an agent may say which call of its task this is, from 0: then the order in which they come makes no difference. */
export const STEP_KEY = 'dev.breakwater/step'

/** Most calls that are told apart by how often they came; the ones longest ago are forgotten. */
const MAX_KEYS = 50_000

/** Longest request whose arguments are compared, in characters: larger ones go by arrival. */
const MAX_TEXT = 256 * 1024

/** Deepest arguments that are compared, in levels. */
const MAX_DEPTH = 100

/** Which logical call this is: all its attempts are the same one. */
export interface Identity {
  readonly server: string
  readonly subject: string
  /** The same in every run in which the same logical calls are made. */
  readonly key: string
  /** Whether the order in which calls came went into the key. */
  readonly orderDependent: boolean
  readonly intent: string | undefined
}

/** Knows calls again: by intent, tool, arguments and occurrence, in whatever order they come. */
export class Identities {
  #occurrences = new Recent<number>(MAX_KEYS)
  #known = new WeakMap<CallRecord, Identity[]>()
  #arrivals = 0

  /** The identity of a call. Its first attempt counts the occurrence; the others find what that one got. */
  of(call: Call): Identity {
    const subject = call.tool ?? call.method
    const known = this.#known.get(call.record)
    for (const identity of known ?? []) {
      if (identity.server === call.server && identity.subject === subject) return identity
    }
    const made = this.#make(call, subject)
    if (known === undefined) this.#known.set(call.record, [made])
    else known.push(made)
    return made
  }

  /** Begins anew: the next call is the first of its kind. */
  clear(): void {
    this.#occurrences = new Recent(MAX_KEYS)
    this.#known = new WeakMap()
    this.#arrivals = 0
  }

  #make(call: Call, subject: string): Identity {
    const { server, tenant, message } = call
    const intent = intentOf(call)
    const whose = intent === undefined ? ['tenant', tenant] : ['intent', intent]
    const kind = call.tool === undefined ? 'method' : 'tool'
    const asked = message.text.length > MAX_TEXT ? undefined : argumentsOf(call)
    if (asked === undefined) {
      const key = joined('arrival', this.#arrivals++)
      return { server, subject, key, orderDependent: true, intent }
    }
    const step = stepOf(call)
    const which = step === undefined ? [] : ['step', step]
    const base = joined(...whose, server, kind, short(subject), digest(asked), ...which)
    const occurrence = this.#occurrences.peek(base) ?? 0
    this.#occurrences.set(base, occurrence + 1)
    return { server, subject, key: `${base} ${joined(occurrence)}`, orderDependent: false, intent }
  }
}

/** The task of a call, as its agent names it; undefined when it does not: traces and sessions have names of chance. */
export function intentOf({ message, record }: Call): string | undefined {
  const intent = metaOf(message.value, 'params', INTENT_KEY)
  if (typeof intent === 'string' && intent !== '') return short(intent)
  const known = record.intent
  return known?.source === 'baggage' || known?.source === 'header' ? short(known.id) : undefined
}

/** Which call of its task this is, as its agent numbers them; undefined when it does not. */
export function stepOf({ message }: Call): number | undefined {
  const step = metaOf(message.value, 'params', STEP_KEY)
  return typeof step === 'number' && Number.isSafeInteger(step) && step >= 0 ? step : undefined
}

/** The key that draws are made with: every attempt has draws of its own, unless they are to share a fate. */
export const drawKeyOf = ({ key }: Identity, attempt: number, sticky: boolean): string =>
  sticky ? key : `${key} a${attempt}`

/** What is asked for, without what is said about the asking. */
function argumentsOf({ tool, message }: Call): string | undefined {
  const params = paramsOf(message.value)
  if (tool !== undefined) return comparable(params.arguments ?? {})
  const { _meta, ...asked } = params
  return comparable(asked)
}

/** Undefined when it nests too deep: then calls go by arrival. */
export const comparable = (value: unknown): string | undefined =>
  canonicalJson(value, { maxDepth: MAX_DEPTH })

const short = (text: string) => (text.length <= 128 ? text : `${text.slice(0, 64)}…${digest(text)}`)
