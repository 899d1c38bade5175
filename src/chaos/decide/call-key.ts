import type { Call, CallRecord } from '../../mesh/call.ts'
import { paramsOf } from '../../protocol/jsonrpc.ts'
import { canonicalJson } from '../../protocol/canonical-json.ts'
import { isNamed, stepOf, taskOf } from '../../protocol/task.ts'
import { digest, joined } from './decide.ts'
import { Recent } from '../../units/recent.ts'

/** Maximum number of calls whose occurrences are counted; the oldest calls are forgotten. */
const MAX_KEYS = 50_000

/** Longest request whose arguments are compared, in characters. The key of a longer request is its order of arrival. */
const MAX_TEXT = 256 * 1024

/** Deepest nesting of arguments that are compared, in levels. */
const MAX_DEPTH = 100

/** Identity of a logical call, shared by all attempts at the call. */
export interface Identity {
  readonly server: string
  readonly subject: string
  /** Equal in all runs that make the same logical calls. */
  readonly key: string
  /** True when the key depends on the order of calls. */
  readonly orderDependent: boolean
  readonly intent: string | undefined
}

/** Recognises calls by intent, tool, arguments and occurrence, in any order. */
export class Identities {
  #occurrences = new Recent<number>(MAX_KEYS)
  #known = new WeakMap<CallRecord, Identity[]>()
  #arrivals = 0

  /** Returns the identity of a call. The first attempt counts the occurrence; later attempts get the same identity. */
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

  /** Forgets all earlier calls. */
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
    // Each arm of an experiment counts occurrences separately, so that the same call gets the same key in both arms.
    const counted = call.record.arm === '' ? base : joined('arm', call.record.arm, base)
    const occurrence = this.#occurrences.peek(counted) ?? 0
    this.#occurrences.set(counted, occurrence + 1)
    return { server, subject, key: `${base} ${joined(occurrence)}`, orderDependent: false, intent }
  }
}

/** Returns the task of a call as the agent names it; undefined when the agent names no task. */
function intentOf(call: Call): string | undefined {
  const task = call.record.intent ?? taskOf(call)
  return task !== undefined && isNamed(task) ? short(task.id) : undefined
}

/** Returns the key of random draws. Each attempt has its own key; with `sticky`, all attempts at a call share a key. */
export const drawKeyOf = ({ key }: Identity, attempt: number, sticky: boolean): string =>
  sticky ? key : `${key} a${attempt}`

/** Returns a tool's arguments, or else the params without `_meta`, as comparable text; undefined if nested too deep. */
function argumentsOf({ tool, message }: Call): string | undefined {
  const params = paramsOf(message.value)
  if (tool !== undefined) return comparable(params.arguments ?? {})
  const { _meta, ...asked } = params
  return comparable(asked)
}

/** Returns a value as canonical JSON; undefined when the value nests too deep. */
export const comparable = (value: unknown): string | undefined =>
  canonicalJson(value, { maxDepth: MAX_DEPTH })

const short = (text: string) => (text.length <= 128 ? text : `${text.slice(0, 64)}…${digest(text)}`)
