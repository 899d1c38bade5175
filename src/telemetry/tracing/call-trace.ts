import { type Call, type CallRecord, derive, type Message, type Outcome } from '../../mesh/call.ts'
import type { Clock, Millis } from '../../mesh/clock.ts'
import { gatewayError } from '../../mesh/errors.ts'
import { Slot } from '../../mesh/record.ts'
import { locate } from '../../protocol/json-span.ts'
import { isEmpty, isObject } from '../../protocol/jsonrpc.ts'
import { withMeta, withEntry } from '../../protocol/meta.ts'
import type { Parent } from '../../protocol/task.ts'
import { type Head, parentOf, type RandomIds } from './context.ts'

/** The facts about an attempt at a server, kept until its span is written or dropped. */
export class AttemptFacts {
  /** The id of the attempt's span, 16 hexadecimal digits; sent to the server as the parent id. */
  readonly spanId: string
  readonly call: Call
  readonly startedAt: Millis
  /** End of the attempt; undefined while in progress, and also later if the call ended first. */
  endedAt: Millis | undefined
  outcome: Outcome | undefined
  replica: number | undefined

  constructor(spanId: string, call: Call, startedAt: Millis) {
    this.spanId = spanId
    this.call = call
    this.startedAt = startedAt
    this.endedAt = undefined
    this.outcome = undefined
    this.replica = call.replica
  }
}

/**
 * The facts about a call for its spans. Collecting facts takes a tenth of the time of spans, so spans are made only
 * after the call, and only if they are sent.
 */
export class CallTrace {
  readonly traceId: string
  /** The span of the agent that made the call; undefined for a call that begins a trace. */
  readonly parent: Parent | undefined
  /**
   * The sampling decision at the call's beginning, sent to the server. True: the trace is recorded with any outcome.
   */
  readonly sampled: boolean
  attempts: AttemptFacts[] = []
  /** Number of calls in progress for the same request of the agent; usually one. */
  open = 1
  outcome: Outcome | undefined
  /** The id of the call's own span; set at the end of the call if its spans are sent. */
  spanId: string | undefined

  constructor(traceId: string, parent: Parent | undefined, sampled: boolean) {
    this.traceId = traceId
    this.parent = parent
    this.sampled = sampled
  }

  /** Drops the results, which may be large, because other modules keep the call's record after the end of the call. */
  forget(): void {
    this.attempts = []
    this.outcome = undefined
  }
}

/** The trace facts of a call; undefined when tracing is off. */
export const callTrace = new Slot<CallTrace | undefined>(undefined)

/** The outcome of a call or an attempt that a bug in Breakwater ended. */
export const brokenOff: Outcome = { kind: 'failed', error: gatewayError('internal', 'internal error') }

/**
 * Returns the ids of a call's span, for log lines; undefined before the end of the call, or if its spans are not sent.
 */
export function keptSpanOf(record: CallRecord): { traceId: string; spanId: string } | undefined {
  const trace = callTrace.of(record)
  return trace?.spanId === undefined ? undefined : { traceId: trace.traceId, spanId: trace.spanId }
}

interface CallsParts {
  readonly ids: Pick<RandomIds, 'trace'>
  readonly head: Head
}

export function beginTrace({ ids, head }: CallsParts, call: Call): void {
  const { record } = call
  // A request to all servers makes several calls, which share one record and one trace.
  const shared = callTrace.of(record)
  if (shared !== undefined && shared.open > 0) {
    shared.open++
    return
  }
  const parent = parentOf(call)
  const traceId = parent?.traceId ?? ids.trace()
  const trace = new CallTrace(traceId, parent, head(traceId, parent))
  callTrace.note(record, trace)
  if (trace.sampled) record.traceId = traceId
}

/**
 * Ends a call. When the last call of the agent's request has ended, passes the facts to `over`, which must not throw.
 */
export function endTrace(
  call: Call,
  outcome: Outcome,
  over: (call: Call, trace: CallTrace, outcome: Outcome) => void,
): void {
  const trace = callTrace.of(call.record)
  if (trace === undefined) return
  // If a request makes several calls, a failed call decides the outcome of the request.
  if (trace.outcome === undefined || trace.outcome.kind === 'answered') trace.outcome = outcome
  if (--trace.open > 0) return
  over(call, trace, trace.outcome)
  trace.forget()
}

interface AttemptsParts {
  readonly clock: Clock
  readonly ids: Pick<RandomIds, 'span'>
}

/** Stores the start of an attempt. Returns the call with the headers that let its server join the trace. */
export function beginAttempt({ clock, ids }: AttemptsParts, call: Call): Call {
  const trace = callTrace.of(call.record)
  if (trace === undefined) return call
  // The call has ended and its spans are complete. The attempt gets no span, so the call's span becomes the parent of
  // the server's spans.
  if (trace.open === 0) return stampedBy(call, trace, trace.spanId ?? ids.span())
  const spanId = ids.span()
  const outgoing = stampedBy(call, trace, spanId)
  trace.attempts.push(new AttemptFacts(spanId, outgoing, clock.now()))
  return outgoing
}

/** Stores the end of an attempt, unless its call has ended before. `outgoing`: the call as sent to the server. */
export function endAttempt({ clock }: Pick<AttemptsParts, 'clock'>, outgoing: Call, outcome: Outcome): void {
  const trace = callTrace.of(outgoing.record)
  if (trace === undefined) return
  const facts = trace.attempts.find(({ call }) => call === outgoing)
  if (facts === undefined) return
  facts.endedAt = clock.now()
  facts.outcome = outcome
  facts.replica ??= outgoing.record.replica
}

function stampedBy(call: Call, trace: CallTrace, spanId: string): Call {
  return derive(call, { headers: stampHeaders(call.headers, trace, spanId) })
}

/** The trace that a server joins, in W3C Trace Context format. */
interface Stamp {
  readonly traceparent: string
  readonly tracestate: string | undefined
}

/**
 * Returns the headers of an attempt with the trace. Does not change `headers`, because other attempts, such as hedges,
 * use them too.
 */
export function stampHeaders(headers: Call['headers'], trace: CallTrace, spanId: string): Call['headers'] {
  const traceparent = `00-${trace.traceId}-${spanId}-${trace.sampled ? '01' : '00'}`
  const tracestate = trace.parent?.state
  if (tracestate !== undefined) return { ...headers, traceparent, tracestate }
  // Removes a forwarded `tracestate`, because it belongs to another parent.
  if (headers !== undefined && 'tracestate' in headers) {
    const { tracestate: _, ...others } = headers
    return { ...others, traceparent }
  }
  return headers === undefined ? { traceparent } : { ...headers, traceparent }
}

/** Returns the trace headers for the server of an attempt; undefined for calls without a trace. */
function stampOf({ record, headers }: Call): Stamp | undefined {
  if (callTrace.of(record) === undefined || headers?.traceparent === undefined) return undefined
  return { traceparent: headers.traceparent, tracestate: headers.tracestate }
}

/** Returns the call with its trace headers also in `params._meta`, which servers of every transport can read. */
export function stamped(call: Call): Call {
  const stamp = stampOf(call)
  if (stamp === undefined) return call
  const message = withTraceparent(call.message, stamp.traceparent)
  if (stamp.tracestate === undefined) return derive(call, { message })
  return derive(call, { message: withMeta(message, 'params', 'tracestate', stamp.tracestate) })
}

/**
 * Returns the same as `withMeta`. Three times as fast for the most common message, which has `params` but no `_meta`.
 */
function withTraceparent(message: Message, traceparent: string): Message {
  const { text, value } = message
  const { params } = value
  const isPlain = isObject(params) && !('_meta' in params)
  const span = isPlain ? locate(text, ['params']) : undefined
  if (!isPlain || span === undefined) return withMeta(message, 'params', 'traceparent', traceparent)
  const inside = span.start + 1
  const comma = isEmpty(params) ? '' : ','
  return {
    text: `${text.slice(0, inside)}"_meta":{"traceparent":"${traceparent}"}${comma}${text.slice(inside)}`,
    value: withEntry(value, 'params', withEntry(params, '_meta', { traceparent })),
  }
}
