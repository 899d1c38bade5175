import { baggageOf } from './baggage.ts'
import { isObject, paramsOf } from './jsonrpc.ts'
import type { Era } from './versions.ts'

/** Where an agent says which of its tasks a call belongs to. */
export const INTENT_KEY = 'dev.breakwater/intent'

/** Where an agent may say which call of its task this is, from 0: then the order in which they come makes no difference. */
export const STEP_KEY = 'dev.breakwater/step'

/** Where an agent may say in which arm of an experiment a call is to be, where the experiment leaves that to agents. */
export const ARM_KEY = 'dev.breakwater/arm'

/** The name of a task as a header, and as an entry of `baggage` (W3C), in `_meta` or as a header. */
export const INTENT_HEADER = 'x-breakwater-intent'
const INTENT_BAGGAGE = 'breakwater.intent'

/** The conversation of an agent, by OpenTelemetry's conventions: an entry of baggage that frameworks set by themselves. */
const CONVERSATION_BAGGAGE = 'gen_ai.conversation.id'

const TASK_BAGGAGE: ReadonlySet<string> = new Set([INTENT_BAGGAGE, CONVERSATION_BAGGAGE])

/** Longest name of a task, in characters: what is longer is none. */
export const LONGEST_INTENT = 256

/** The task of an agent that a call belongs to. */
export interface Task {
  /** As the agent named it, or its trace, or its session: unique only together with `source` and the tenant. */
  readonly id: string
  /** The source of the id, from the surest to the vaguest. */
  readonly source: 'meta' | 'baggage' | 'conversation' | 'trace' | 'header' | 'session'
}

/** As much of a call as tells which task it belongs to. */
export interface TaskClues {
  readonly message: { readonly value: Readonly<Record<string, unknown>> }
  /** All headers of the agent's request, lower case. */
  readonly inbound: Readonly<Record<string, string | string[] | undefined>>
  /** A caller of the modern era has no session, and may stand for many clients. */
  readonly caller: { readonly id: string; readonly era: Era }
}

/**
 * The task that a call belongs to, by the surest word there is: `_meta`, baggage, the conversation, the trace of the agent, a header,
 * and for sessions of the older protocol the session. Undefined when there is none. Faults, experiments and telemetry all
 * go by this.
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

/** Sources of names of chance, which are others in the next run. */
const unnamed: ReadonlySet<Task['source']> = new Set(['conversation', 'trace', 'session'])

/** Whether its agent gave it its name. */
export const isNamed = ({ source }: Task): boolean => !unnamed.has(source)

/** Returns the number of the call within its task, as the agent numbers calls; undefined when the agent does not number them. */
export function stepOf({ message }: Pick<TaskClues, 'message'>): number | undefined {
  const { _meta: meta } = paramsOf(message.value)
  const step = isObject(meta) ? meta[STEP_KEY] : undefined
  return typeof step === 'number' && Number.isSafeInteger(step) && step >= 0 ? step : undefined
}

function nameIn(value: unknown): string | undefined {
  return typeof value === 'string' && value !== '' && value.length <= LONGEST_INTENT ? value : undefined
}

/** The span of somebody else that a call belongs under. */
export interface Parent {
  /** 32 hexadecimal digits. */
  readonly traceId: string
  /** 16 hexadecimal digits. */
  readonly spanId: string
  /** Whether its trace was chosen to be recorded. */
  readonly sampled: boolean
  /** The additions of tracing vendors, to be passed on unchanged. */
  readonly state: string | undefined
}

/** https://www.w3.org/TR/trace-context/#traceparent-header; later versions may add fields, and `ff` is none. */
const TRACEPARENT =
  /^(?!ff)([0-9a-f]{2})-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})(-.*)?$/

/** Longest that is looked at: no known version comes near. */
const LONGEST = 256

/** It becomes a header again: nothing may be in it that ends one. */
const TRACESTATE = /^[\x20-\x7e]{1,512}$/

/** Headers of W3C Trace Context and Baggage, lower case. */
const OF_ONE_REQUEST: ReadonlySet<string> = new Set(['baggage', 'traceparent', 'tracestate'])

/**
 * Whether a header describes one request and no caller: the header changes with each request of an agent, and is no credential.
 * `header`: its name at the server, lower case.
 */
export const isOfOneRequest = (header: string): boolean => OF_ONE_REQUEST.has(header)

/** Reads the pair of fields in which W3C Trace Context travels; undefined when the first is missing or malformed. */
export function readParent(traceparent: unknown, tracestate: unknown): Parent | undefined {
  if (typeof traceparent !== 'string' || traceparent.length > LONGEST) return undefined
  const [, version, traceId, spanId, flags, more] = TRACEPARENT.exec(traceparent) ?? []
  if (traceId === undefined || spanId === undefined || flags === undefined) return undefined
  if (version === '00' && more !== undefined) return undefined
  const state = typeof tracestate === 'string' && TRACESTATE.test(tracestate) ? tracestate : undefined
  return { traceId, spanId, sampled: (Number.parseInt(flags, 16) & 1) === 1, state }
}
