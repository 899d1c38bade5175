import { baggageOf } from './baggage.ts'
import { isObject, paramsOf } from './jsonrpc.ts'
import type { Era } from './versions.ts'

/** Key by which an agent names the task of a call. */
export const INTENT_KEY = 'dev.breakwater/intent'

/** Key by which an agent may number the calls of its task, from 0; then their order of arrival makes no difference. */
export const STEP_KEY = 'dev.breakwater/step'

/** Key by which an agent may choose a call's experiment arm, if the experiment leaves the choice to agents. */
export const ARM_KEY = 'dev.breakwater/arm'

/** The header, and the entry of W3C baggage, in which an agent names its task. */
export const INTENT_HEADER = 'x-breakwater-intent'
const INTENT_BAGGAGE = 'breakwater.intent'

/** An agent's conversation, by OpenTelemetry's conventions: a baggage entry that frameworks set by themselves. */
const CONVERSATION_BAGGAGE = 'gen_ai.conversation.id'

const TASK_BAGGAGE: ReadonlySet<string> = new Set([INTENT_BAGGAGE, CONVERSATION_BAGGAGE])

/** Longest name of a task, in characters; a longer name is ignored. */
export const LONGEST_INTENT = 256

export interface Task {
  /** The agent's name for the task, or its trace, or its session; unique only together with `source` and the tenant. */
  readonly id: string
  /** Where the id comes from, listed from the most reliable source to the least reliable. */
  readonly source: 'meta' | 'baggage' | 'conversation' | 'trace' | 'header' | 'session'
}

/** The parts of a call that determine its task. */
export interface TaskClues {
  readonly message: { readonly value: Readonly<Record<string, unknown>> }
  /** All headers of the agent's request, lower case. */
  readonly inbound: Readonly<Record<string, string | string[] | undefined>>
  /** A caller of the modern era has no session, and may stand for many clients. */
  readonly caller: { readonly id: string; readonly era: Era }
}

/**
 * Returns the task of a call by the surest source: `_meta`, baggage, the conversation, the agent's trace, a header, or
 * the session in the legacy era. Undefined without a source. Faults, experiments and telemetry all use this task.
 */
export function taskOf({ message, inbound, caller }: TaskClues): Task | undefined {
  const found = paramsOf(message.value)._meta
  const meta = isObject(found) ? found : undefined
  const named = nameIn(meta?.[INTENT_KEY])
  if (named !== undefined) return { id: named, source: 'meta' }
  const mayCarry = meta !== undefined || inbound.baggage !== undefined
  const baggage = mayCarry ? baggageOf({ message, inbound }, TASK_BAGGAGE) : undefined
  const carried = baggage?.get(INTENT_BAGGAGE)
  if (carried !== undefined) return { id: carried, source: 'baggage' }
  const conversation = baggage?.get(CONVERSATION_BAGGAGE)
  if (conversation !== undefined) return { id: conversation, source: 'conversation' }
  const parent = meta?.traceparent === undefined ? undefined : readParent(meta.traceparent, undefined)
  if (parent !== undefined) return { id: parent.traceId, source: 'trace' }
  const header = nameIn(inbound[INTENT_HEADER])
  if (header !== undefined) return { id: header, source: 'header' }
  return caller.era === 'modern' ? undefined : { id: caller.id, source: 'session' }
}

/** Sources of random names, which differ in the next run. */
const unnamed: ReadonlySet<Task['source']> = new Set(['conversation', 'trace', 'session'])

/** Whether the agent chose the task's name. */
export const isNamed = ({ source }: Task): boolean => !unnamed.has(source)

/** Returns the agent's number of a call within its task; undefined when the agent does not number calls. */
export function stepOf({ message }: Pick<TaskClues, 'message'>): number | undefined {
  const { _meta: meta } = paramsOf(message.value)
  const step = isObject(meta) ? meta[STEP_KEY] : undefined
  return typeof step === 'number' && Number.isSafeInteger(step) && step >= 0 ? step : undefined
}

function nameIn(value: unknown): string | undefined {
  return typeof value === 'string' && value !== '' && value.length <= LONGEST_INTENT ? value : undefined
}

/** The agent's span, parent of the call's span. */
export interface Parent {
  /** 32 hexadecimal digits. */
  readonly traceId: string
  /** 16 hexadecimal digits. */
  readonly spanId: string
  /** Whether the trace is recorded. */
  readonly sampled: boolean
  /** Tracing vendors' additions, passed on unchanged. */
  readonly state: string | undefined
}

/** https://www.w3.org/TR/trace-context/#traceparent-header; later versions may add fields, and `ff` is no version. */
const TRACEPARENT =
  /^(?!ff)([0-9a-f]{2})-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})(-.*)?$/

/** Longest `traceparent` that is read, in characters: all known versions are much shorter. */
const LONGEST = 256

/** Valid values of `tracestate`: a value becomes a header again, so it must hold no line break. */
const TRACESTATE = /^[\x20-\x7e]{1,512}$/

/** Headers of W3C Trace Context and Baggage, lower case. */
const OF_ONE_REQUEST: ReadonlySet<string> = new Set(['baggage', 'traceparent', 'tracestate'])

/**
 * Whether a header describes one request, not a caller: the header changes with each request of an agent, and is no
 * credential. `header`: its name at the server, lower case.
 */
export const isOfOneRequest = (header: string): boolean => OF_ONE_REQUEST.has(header)

/** Reads `traceparent` and `tracestate` of W3C Trace Context; undefined when the first is missing or malformed. */
export function readParent(traceparent: unknown, tracestate: unknown): Parent | undefined {
  if (typeof traceparent !== 'string' || traceparent.length > LONGEST) return undefined
  const [, version, traceId, spanId, flags, more] = TRACEPARENT.exec(traceparent) ?? []
  if (traceId === undefined || spanId === undefined || flags === undefined) return undefined
  if (version === '00' && more !== undefined) return undefined
  const state = typeof tracestate === 'string' && TRACESTATE.test(tracestate) ? tracestate : undefined
  return { traceId, spanId, sampled: (Number.parseInt(flags, 16) & 1) === 1, state }
}
