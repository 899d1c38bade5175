import { createTraceState, type SpanContext, SpanKind, TraceFlags } from '@opentelemetry/api'
import type { Call, CallRecord, Message, Outcome } from '../../mesh/call.ts'
import { type Clock, endOfTurn, type Millis } from '../../mesh/clock.ts'
import { gatewayError } from '../../mesh/errors.ts'
import { Burst, type BurstLimits } from '../../mesh/turns.ts'
import { LargeMessage } from '../../protocol/large-message.ts'
import type { Peer } from '../conventions.ts'
import {
  addDecisions,
  addPayloads,
  addResult,
  attemptAttributes,
  callAttributes,
  clipped,
  type ConcealFor,
  FaultEvents,
} from './attributes.ts'
import {
  type AttemptFacts,
  beginAttempt,
  beginTrace,
  type CallTrace,
  endAttempt,
  endTrace,
} from './call-trace.ts'
import { ambientOf, createHead, Epoch, RandomIds } from './context.ts'
import type { Tracing, TracingParts } from './contract.ts'
import { EndedSpan, type SpanOrigin } from './ended-span.ts'
import { type KeepReason, whyKept, ATTRIBUTES as A } from './spans.ts'
import type { Parent } from '../../protocol/task.ts'
import { startPipeline } from './pipeline.ts'
import type { TracingSettings } from './settings.ts'

/** How long the last spans are waited for, in milliseconds. */
const GOODBYE_MS = 3_000

/**
 * Spans are written of so many calls in a row, or after so long: each then costs half of what it costs by itself. An exporter waits for
 * seconds anyway, so that nobody sees them later for it.
 */
const BURST: BurstLimits = { pieces: 32, ms: 100 }

/** A call or a result beyond this is not kept for so long, in UTF-16 code units. */
const LONGEST_KEPT = 16 * 1024

/** Tracing that is on. Loads the SDK, which takes half a second: hence in a file of its own. */
export async function startTracing(settings: TracingSettings, parts: TracingParts): Promise<Tracing> {
  const { clock, log, config } = parts
  const pipeline = await startPipeline(settings, parts)
  const ids = new RandomIds()
  const writer = new SpanWriter({ ...parts, ...pipeline, payloads: config.payloads })
  let told = false
  const ended = new Burst<EndedCall>(clock, BURST, (call) => {
    try {
      writer.write(call)
    } catch (error) {
      // A defect of tracing is no reason for a line in the log for each call.
      if (!told) log.error({ err: error }, 'tracing met a defect of the gateway; its spans are missing')
      told = true
    }
  })

  function over(call: Call, trace: CallTrace, outcome: Outcome): void {
    const kept = whyKept(trace, call.record, outcome)
    if (kept === undefined) return
    const { traceId, attempts, parent } = trace
    trace.spanId = ids.span()
    call.record.traceId = traceId
    ended.add({ call, traceId, spanId: trace.spanId, parent, attempts, outcome, kept, at: clock.now() })
    if (isLong(call.message) || (outcome.kind === 'answered' && isLong(outcome.result)))
      endOfTurn(ended.flush)
  }

  const attemptsParts = { clock, ids }
  const callsParts = { ids, head: createHead(settings.sample) }
  let closing: Promise<void> | undefined
  return {
    begin: (call) => beginTrace(callsParts, call),
    end: (call, outcome) => endTrace(call, outcome, over),
    beginAttempt: (call) => beginAttempt(attemptsParts, call),
    endAttempt: (call, outcome) => endAttempt(attemptsParts, call, outcome),
    close: () => (closing ??= (ended.flush(), pipeline.close(GOODBYE_MS))),
  }
}

const isLong = (message: Message) => LargeMessage.is(message) || message.text.length > LONGEST_KEPT

/** A call that is over and whose trace is kept, until its spans are made: its agent does not wait for them. */
interface EndedCall extends Pick<CallTrace, 'traceId' | 'parent' | 'attempts'> {
  readonly call: Call
  readonly spanId: string
  readonly outcome: Outcome
  readonly kept: KeepReason
  /** When it ended. */
  readonly at: Millis
}

interface WriterParts {
  readonly clock: Clock
  readonly origin: SpanOrigin
  /** Takes spans to the collector. */
  readonly take: (span: EndedSpan) => void
  readonly payloads: boolean
  /** Whether a tool is in its server's catalog: only then may it name a span. */
  readonly isListed: (server: string, tool: string) => boolean
  /** How the replica that a call went to is reached; undefined when that is not known. */
  readonly peerOf: (call: Call, replica: number | undefined) => Peer | undefined
  readonly conceal: ConcealFor
}

/** The outcome of an attempt that was still under way when its call had ended. */
const givenUp: Outcome = { kind: 'failed', error: gatewayError('cancelled', 'the call was over before it') }

/** Makes the spans of calls that are over from their facts. */
class SpanWriter {
  readonly #parts: WriterParts
  readonly #epoch: Epoch

  constructor(parts: WriterParts) {
    this.#parts = parts
    this.#epoch = new Epoch(parts.clock)
  }

  /** One SERVER span for the call, and a CLIENT span under it for each attempt. */
  write({ call, traceId, spanId, parent, attempts, outcome, kept, at }: EndedCall): void {
    const { origin, take, payloads, conceal } = this.#parts
    this.#epoch.refresh()
    const attributes = callAttributes(call, attempts[0], kept)
    const status = addResult(attributes, call, outcome, conceal)
    if (outcome.kind === 'rejected') attributes[A.rejectedBy] = outcome.by
    if (payloads) addPayloads(attributes, call, outcome)
    const startTime = this.#epoch.at(call.record.startedAt)
    const endTime = this.#epoch.at(at)
    const before = parent && contextOf(parent)
    const ambient = ambientOf(call, parent)
    const context = spanContext(traceId, spanId, before)
    const span = new EndedSpan(
      {
        name: this.#nameOf(call),
        kind: SpanKind.SERVER,
        context,
        parent: before,
        links: ambient === undefined ? [] : [{ context: contextOf(ambient) }],
        startTime,
        endTime,
        status,
        attributes,
      },
      origin,
    )
    const faults = isFaulted(call.record) ? new FaultEvents(call.record) : undefined
    for (const attempt of attempts) this.#writeAttempt(attempt, faults, context, at)
    faults?.addToCall(span, startTime)
    addDecisions(span, call.record, outcome, endTime)
    take(span)
  }

  #writeAttempt(
    facts: AttemptFacts,
    faults: FaultEvents | undefined,
    parent: SpanContext,
    callEndedAt: Millis,
  ): void {
    const { origin, take, peerOf, conceal } = this.#parts
    const { call, spanId, outcome = givenUp } = facts
    const attributes = attemptAttributes(facts, peerOf(call, facts.replica))
    const status = addResult(attributes, call, outcome, conceal)
    const startTime = this.#epoch.at(facts.startedAt)
    const endTime = this.#epoch.at(facts.endedAt ?? callEndedAt)
    const context = spanContext(parent.traceId, spanId, parent)
    const span = new EndedSpan(
      {
        name: this.#nameOf(call),
        kind: SpanKind.CLIENT,
        context,
        parent,
        startTime,
        endTime,
        status,
        attributes,
      },
      origin,
    )
    faults?.addToAttempt(span, call.attempt, startTime)
    take(span)
  }

  /** Collectors make metrics of span names: what an agent made up must not become one. */
  #nameOf({ server, method, tool }: Call): string {
    return clipped(tool !== undefined && this.#parts.isListed(server, tool) ? `${method} ${tool}` : method)
  }
}

/** Whether there is anything to tell of faults. */
const isFaulted = ({ faults, fates }: CallRecord) => faults !== undefined || fates !== undefined

/** The context of a span of ours, all of which are sent; its state is that of the span above it. */
function spanContext(traceId: string, spanId: string, parent: SpanContext | undefined): SpanContext {
  const context = { traceId, spanId, traceFlags: TraceFlags.SAMPLED }
  return parent?.traceState === undefined ? context : { ...context, traceState: parent.traceState }
}

/** The context of somebody else's span. */
function contextOf({ traceId, spanId, sampled, state }: Parent): SpanContext {
  const traceFlags = sampled ? TraceFlags.SAMPLED : TraceFlags.NONE
  const context = { traceId, spanId, traceFlags, isRemote: true }
  return state === undefined ? context : { ...context, traceState: createTraceState(state) }
}
