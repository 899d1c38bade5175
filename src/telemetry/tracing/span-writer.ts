import {
  type Context,
  createTraceState,
  ROOT_CONTEXT,
  type Span,
  SpanKind,
  trace as api,
  TraceFlags,
  type Tracer,
} from '@opentelemetry/api'
import type { Call, CallRecord, Outcome } from '../../mesh/call.ts'
import type { Clock, Millis } from '../../mesh/clock.ts'
import { gatewayError } from '../../mesh/errors.ts'
import {
  addDecisions,
  addPayloads,
  addResult,
  attemptAttributes,
  callAttributes,
  clipped,
  FaultEvents,
  type Peer,
} from './attributes.ts'
import type { AttemptFacts, CallTrace } from './call-trace.ts'
import { Epoch, type PreparedIds, type RandomIds } from './context.ts'
import type { Kept } from './keep.ts'
import { ATTRIBUTES as A } from './spans.ts'

export interface WriterParts {
  readonly clock: Clock
  readonly tracer: Tracer
  readonly ids: RandomIds
  readonly prepared: PreparedIds
  readonly payloads: boolean
  /** Whether a tool is in its server's catalog: only then may it name a span. */
  readonly isListed: (server: string, tool: string) => boolean
  /** How the replica that a call went to is reached; undefined when that is not known. */
  readonly peerOf: (call: Call, replica: number | undefined) => Peer | undefined
}

/** What became of an attempt that was still under way when its call had ended. */
const givenUp: Outcome = { kind: 'failed', error: gatewayError('cancelled', 'the call was over before it') }

/** Makes the spans of calls that are over from their facts. */
export class SpanWriter {
  readonly #parts: WriterParts
  readonly #epoch: Epoch

  constructor(parts: WriterParts) {
    this.#parts = parts
    this.#epoch = new Epoch(parts.clock)
  }

  /** One SERVER span for the call, and a CLIENT span under it for each attempt. */
  write(call: Call, trace: CallTrace, outcome: Outcome, kept: Kept): void {
    const { clock, ids, payloads } = this.#parts
    const endedAt = clock.now()
    const spanId = ids.span()
    this.#epoch.refresh()
    const attributes = callAttributes(call, trace, kept)
    const status = addResult(attributes, call, outcome)
    if (outcome.kind === 'rejected') attributes[A.rejectedBy] = outcome.by
    if (payloads) addPayloads(attributes, call, outcome)
    const startTime = this.#epoch.at(call.record.startedAt)
    const options = { kind: SpanKind.SERVER, attributes, startTime }
    const span = this.#start(call, trace.traceId, spanId, options, contextOf(trace))
    span.setStatus(status)
    const faults = isShaken(call.record) ? new FaultEvents(call.record) : undefined
    if (trace.attempts.length > 0) {
      const context = api.setSpan(ROOT_CONTEXT, span)
      for (const attempt of trace.attempts)
        this.#writeAttempt(attempt, faults, trace.traceId, context, endedAt)
    }
    faults?.addToCall(span, startTime)
    const endTime = this.#epoch.at(endedAt)
    addDecisions(span, call.record, outcome, endTime)
    span.end(endTime)
    trace.spanId = spanId
  }

  #writeAttempt(
    facts: AttemptFacts,
    faults: FaultEvents | undefined,
    traceId: string,
    context: Context,
    callEndedAt: Millis,
  ): void {
    const { call, spanId, outcome = givenUp } = facts
    const attributes = attemptAttributes(facts, this.#parts.peerOf(call, facts.replica))
    const status = addResult(attributes, call, outcome)
    const startTime = this.#epoch.at(facts.startedAt)
    const span = this.#start(call, traceId, spanId, { kind: SpanKind.CLIENT, attributes, startTime }, context)
    span.setStatus(status)
    faults?.addToAttempt(span, call.attempt, startTime)
    span.end(this.#epoch.at(facts.endedAt ?? callEndedAt))
  }

  #start(
    { server, method, tool }: Call,
    traceId: string,
    spanId: string,
    options: Parameters<Tracer['startSpan']>[1],
    context: Context,
  ): Span {
    const { tracer, prepared, isListed } = this.#parts
    prepared.prepare(traceId, spanId)
    // Collectors make metrics of span names: what an agent made up must not become one.
    const name = tool !== undefined && isListed(server, tool) ? `${method} ${tool}` : method
    return tracer.startSpan(clipped(name), options, context)
  }
}

/** Whether there is anything to tell of faults. */
const isShaken = ({ faults, fates }: CallRecord) => faults !== undefined || fates !== undefined

/** The context in which the span of a call begins: that of its caller, if it has told. */
function contextOf({ parent }: CallTrace): Context {
  if (parent === undefined) return ROOT_CONTEXT
  const { traceId, spanId, sampled, state } = parent
  const traceFlags = sampled ? TraceFlags.SAMPLED : TraceFlags.NONE
  const context = { traceId, spanId, traceFlags, isRemote: true }
  const known = state === undefined ? context : { ...context, traceState: createTraceState(state) }
  return api.setSpanContext(ROOT_CONTEXT, known)
}
