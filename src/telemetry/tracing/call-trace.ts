import { type Call, type CallRecord, derive, type Message, type Outcome } from '../../mesh/call.ts'
import type { Clock, Millis } from '../../mesh/clock.ts'
import { gatewayError } from '../../mesh/errors.ts'
import { Slot } from '../../mesh/record.ts'
import { locate } from '../../protocol/json-span.ts'
import { isEmpty, isObject } from '../../protocol/jsonrpc.ts'
import { withMeta, withEntry } from '../../protocol/meta.ts'
import type { Parent } from '../../protocol/task.ts'
import { type Head, parentOf, type RandomIds } from './context.ts'

/** The facts of a try at a server, kept until the spans are sent or dropped. */
export class AttemptFacts {
  /** 16 hexadecimal digits: the parent id sent to the server. */
  readonly spanId: string
  readonly call: Call
  readonly startedAt: Millis
  /** Undefined while under way, and for good when the call ended first. */
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

/** The plain facts of a call. Facts cost a tenth of spans, so spans are made only after the call, if they are kept. */
export class CallTrace {
  readonly traceId: string
  /** Undefined for a call that begins a trace. */
  readonly parent: Parent | undefined
  /** The decision made at the beginning and sent to the server; true: the trace is recorded whatever the outcome. */
  readonly sampled: boolean
  attempts: AttemptFacts[] = []
  /** Calls under way that are parts of the same request of the agent; usually one. */
  open = 1
  outcome: Outcome | undefined
  /** The id of its own span, once the call is over and its trace is kept. */
  spanId: string | undefined

  constructor(traceId: string, parent: Parent | undefined, sampled: boolean) {
    this.traceId = traceId
    this.parent = parent
    this.sampled = sampled
  }

  /** Drops results, which may be large: others keep the record beyond the end of the call. */
  forget(): void {
    this.attempts = []
    this.outcome = undefined
  }
}

/** The trace facts of a call; undefined when tracing is off. */
export const callTrace = new Slot<CallTrace | undefined>(undefined)

/** The outcome of a call or attempt ended by a bug in Breakwater. */
export const brokenOff: Outcome = { kind: 'failed', error: gatewayError('internal', 'internal error') }

/** Returns the span of a call with a kept trace, for log lines; undefined before its end and for all others. */
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
  // A request to all servers is several calls with a shared record and a shared trace.
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

/** Passes the facts of an agent's request to `over`, which must not throw, when its last call has ended. */
export function endTrace(
  call: Call,
  outcome: Outcome,
  over: (call: Call, trace: CallTrace, outcome: Outcome) => void,
): void {
  const trace = callTrace.of(call.record)
  if (trace === undefined) return
  // When a request has several parts, a failed part stands for all.
  if (trace.outcome === undefined || trace.outcome.kind === 'answered') trace.outcome = outcome
  if (--trace.open > 0) return
  over(call, trace, trace.outcome)
  trace.forget()
}

interface AttemptsParts {
  readonly clock: Clock
  readonly ids: Pick<RandomIds, 'span'>
}

/** Notes the start of a try, and adds the headers by which its server joins the trace. */
export function beginAttempt({ clock, ids }: AttemptsParts, call: Call): Call {
  const trace = callTrace.of(call.record)
  if (trace === undefined) return call
  // Its caller has gone and the spans are settled. The try gets no span, so its server belongs under the call's span.
  if (trace.open === 0) return stampedBy(call, trace, trace.spanId ?? ids.span())
  const spanId = ids.span()
  const outgoing = stampedBy(call, trace, spanId)
  trace.attempts.push(new AttemptFacts(spanId, outgoing, clock.now()))
  return outgoing
}

/** Notes the end of a try, unless its call was over before; `outgoing` is the call as sent. */
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

/** The trace for a server to join, in W3C Trace Context format. */
interface Stamp {
  readonly traceparent: string
  readonly tracestate: string | undefined
}

/** The headers of an attempt: later changes keep the headers, and hedges have their own. */
export function stampHeaders(headers: Call['headers'], trace: CallTrace, spanId: string): Call['headers'] {
  const traceparent = `00-${trace.traceId}-${spanId}-${trace.sampled ? '01' : '00'}`
  const tracestate = trace.parent?.state
  if (tracestate !== undefined) return { ...headers, traceparent, tracestate }
  // A state forwarded from another header belongs to another parent.
  if (headers !== undefined && 'tracestate' in headers) {
    const { tracestate: _, ...others } = headers
    return { ...others, traceparent }
  }
  return headers === undefined ? { traceparent } : { ...headers, traceparent }
}

/** Returns the stamp for the server of an attempt; undefined for untraced calls. */
function stampOf({ record, headers }: Call): Stamp | undefined {
  if (callTrace.of(record) === undefined || headers?.traceparent === undefined) return undefined
  return { traceparent: headers.traceparent, tracestate: headers.tracestate }
}

/** Returns the call with its stamp also in `params._meta`, where servers of every transport find the stamp. */
export function stamped(call: Call): Call {
  const stamp = stampOf(call)
  if (stamp === undefined) return call
  const message = withTraceparent(call.message, stamp.traceparent)
  if (stamp.tracestate === undefined) return derive(call, { message })
  return derive(call, { message: withMeta(message, 'params', 'tracestate', stamp.tracestate) })
}

/** As `withMeta`, but three times as fast for the most common message, with `params` but without `_meta`. */
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
