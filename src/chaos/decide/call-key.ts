import type { Call, CallRecord } from '../../mesh/call.ts'
import { paramsOf } from '../../protocol/jsonrpc.ts'
import { canonicalJson } from '../../protocol/canonical-json.ts'
import { isNamed, stepOf, taskOf } from '../../protocol/task.ts'
import { digest, joined } from './decide.ts'
import { Recent } from '../../units/recent.ts'

/** Most calls with a count of occurrences; the oldest are forgotten. */
const MAX_KEYS = 50_000

/** Longest request with compared arguments, in characters: larger requests count by arrival. */
const MAX_TEXT = 256 * 1024

/** Deepest compared arguments, in levels. */
const MAX_DEPTH = 100

/** Identity of a logical call, shared by all attempts at the call. */
export interface Identity {
  readonly server: string
  readonly subject: string
  /** The same in each run that makes the same logical calls. */
  readonly key: string
  /** Whether the key depends on the order of calls. */
  readonly orderDependent: boolean
  readonly intent: string | undefined
}

/** Recognises calls by intent, tool, arguments and occurrence, in any order. */
export class Identities {
  #occurrences = new Recent<number>(MAX_KEYS)
  #known = new WeakMap<CallRecord, Identity[]>()
  #arrivals = 0

  /** Returns the identity of a call. Its first attempt counts the occurrence; the other attempts share the identity. */
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

  /** Starts again: the next call is the first of its kind. */
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
    // Each arm of an experiment has its own count: twins are the same call, however often the other arm saw such calls.
    const counted = call.record.arm === '' ? base : joined('arm', call.record.arm, base)
    const occurrence = this.#occurrences.peek(counted) ?? 0
    this.#occurrences.set(counted, occurrence + 1)
    return { server, subject, key: `${base} ${joined(occurrence)}`, orderDependent: false, intent }
  }
}

/** The task of a call, as its agent names it; undefined when there is no name. */
function intentOf(call: Call): string | undefined {
  const task = call.record.intent ?? taskOf(call)
  return task !== undefined && isNamed(task) ? short(task.id) : undefined
}

/** Returns the key of draws: each attempt has its own draws, unless attempts share a fate. */
export const drawKeyOf = ({ key }: Identity, attempt: number, sticky: boolean): string =>
  sticky ? key : `${key} a${attempt}`

/** Returns a tool's arguments, or else the params without `_meta`, as comparable text; undefined if nested too deep. */
function argumentsOf({ tool, message }: Call): string | undefined {
  const params = paramsOf(message.value)
  if (tool !== undefined) return comparable(params.arguments ?? {})
  const { _meta, ...asked } = params
  return comparable(asked)
}

/** Undefined when the value nests too deep: then calls count by arrival. */
export const comparable = (value: unknown): string | undefined =>
  canonicalJson(value, { maxDepth: MAX_DEPTH })

const short = (text: string) => (text.length <= 128 ? text : `${text.slice(0, 64)}…${digest(text)}`)
