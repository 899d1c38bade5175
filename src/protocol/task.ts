import { isObject, paramsOf } from './jsonrpc.ts'
import { readParent } from './trace-parent.ts'
import type { Era } from './modern.ts'

/** Where an agent says which of its tasks a call belongs to. */
export const INTENT_KEY = 'dev.breakwater/intent'

/** Where an agent may say which call of its task this is, from 0: then the order in which they come makes no difference. */
export const STEP_KEY = 'dev.breakwater/step'

/** Where an agent may say in which arm of an experiment a call is to be, where the experiment leaves that to agents. */
export const ARM_KEY = 'dev.breakwater/arm'

/** The name of a task as a header, and as an entry of `baggage` (W3C), in `_meta` or as a header. */
export const INTENT_HEADER = 'x-breakwater-intent'
const INTENT_BAGGAGE = 'breakwater.intent'

/** Longest name of a task, in characters: what is longer is none. */
export const LONGEST_INTENT = 256

/** W3C Baggage: the most that anyone has to pass on. */
const MAX_BAGGAGE = 8_192

/** The task of an agent that a call belongs to. */
export interface Task {
  /** As the agent named it, or its trace, or its session: unique only together with `source` and the tenant. */
  readonly id: string
  /** Who says so, from the surest to the vaguest. */
  readonly source: 'meta' | 'baggage' | 'trace' | 'header' | 'session'
}

/** As much of a call as tells which task it belongs to. */
export interface TaskClues {
  readonly message: { readonly value: Readonly<Record<string, unknown>> }
  /** All headers of the agent's request, lower case. */
  readonly inbound: Readonly<Record<string, string | string[] | undefined>>
  /** Who speaks the modern era has no session, and may stand for many. */
  readonly caller: { readonly id: string; readonly era: Era }
}

/**
 * The task that a call belongs to, by the surest word there is: `_meta`, baggage, the trace of the agent, a header,
 * and for sessions of the older protocol the session. Undefined when there is none. Faults, experiments and telemetry all
 * go by this.
 */
export function taskOf({ message, inbound, caller }: TaskClues): Task | undefined {
  const found = paramsOf(message.value)._meta
  const meta = isObject(found) ? found : undefined
  const named = nameIn(meta?.[INTENT_KEY])
  if (named !== undefined) return { id: named, source: 'meta' }
  const carried = fromBaggage(meta?.baggage) ?? fromBaggage(inbound.baggage)
  if (carried !== undefined) return { id: carried, source: 'baggage' }
  const parent = meta?.traceparent === undefined ? undefined : readParent(meta.traceparent, undefined)
  if (parent !== undefined) return { id: parent.traceId, source: 'trace' }
  const header = nameIn(inbound[INTENT_HEADER])
  if (header !== undefined) return { id: header, source: 'header' }
  return caller.era === 'modern' ? undefined : { id: caller.id, source: 'session' }
}

/** Whether its agent gave it its name: traces and sessions have names of chance, which are others in the next run. */
export const isNamed = ({ source }: Task): boolean => source !== 'trace' && source !== 'session'

/** Which call of its task this is, as its agent numbers them; undefined when it does not. */
export function stepOf({ message }: Pick<TaskClues, 'message'>): number | undefined {
  const { _meta: meta } = paramsOf(message.value)
  const step = isObject(meta) ? meta[STEP_KEY] : undefined
  return typeof step === 'number' && Number.isSafeInteger(step) && step >= 0 ? step : undefined
}

function nameIn(value: unknown): string | undefined {
  return typeof value === 'string' && value !== '' && value.length <= LONGEST_INTENT ? value : undefined
}

/** `key=value;property,key=value`, the values percent-encoded (W3C Baggage). */
function fromBaggage(baggage: unknown): string | undefined {
  if (typeof baggage !== 'string' || baggage.length > MAX_BAGGAGE) return undefined
  for (const entry of baggage.split(',')) {
    const [key, value] = entry.split(';', 1)[0]!.split('=', 2)
    if (key?.trim() === INTENT_BAGGAGE) return nameIn(decoded(value?.trim() ?? ''))
  }
  return undefined
}

function decoded(text: string): string | undefined {
  try {
    return decodeURIComponent(text)
  } catch {
    return undefined
  }
}
