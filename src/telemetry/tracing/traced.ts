import { createTraceState, type SpanContext, SpanKind, TraceFlags } from '@opentelemetry/api'
import type { Call, CallRecord, Message, Outcome } from '../../mesh/call.ts'
import { type Clock, endOfTurn, type Millis } from '../../mesh/clock.ts'
import { gatewayError } from '../../mesh/errors.ts'
import { Burst, type BurstLimits } from '../../mesh/turns.ts'
import { faultFates, injectedFaults } from '../../mesh/injected.ts'
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

/** Longest wait for the export of the last spans, in milliseconds. */
const GOODBYE_MS = 3_000

/**
 * Number of ended calls whose spans are written together, and the longest wait for more calls. Writing together halves
 * the cost. The delay does not matter, because an exporter waits for seconds.
 */
const BURST: BurstLimits = { pieces: 32, ms: 100 }

/** Longest call or result that waits for such a burst, in UTF-16 code units. */
const LONGEST_KEPT = 16 * 1024

/** Starts tracing. This is a separate file, because importing it loads the SDK, which takes half a second. */
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
      // Logs only the first error, because a bug in tracing could otherwise cause a log line for each call.
      if (!told) log.error({ err: error }, 'internal error in tracing (a bug in Breakwater); spans missing')
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

/** A finished call whose spans are still to be made; its agent already has the answer. */
interface EndedCall extends Pick<CallTrace, 'traceId' | 'parent' | 'attempts'> {
  readonly call: Call
  readonly spanId: string
  readonly outcome: Outcome
  readonly kept: KeepReason
  readonly at: Millis
}

interface WriterParts {
  readonly clock: Clock
  readonly origin: SpanOrigin
  readonly take: (span: EndedSpan) => void
  readonly payloads: boolean
  /** Returns true when a tool is in its server's catalog. Only then may the tool's name be in a span's name. */
  readonly isListed: (server: string, tool: string) => boolean
  /** Returns the transport, address and protocol version of a call's replica; undefined when unknown. */
  readonly peerOf: (call: Call, replica: number | undefined) => Peer | undefined
  readonly conceal: ConcealFor
}

/** The outcome for an attempt that is in progress at the end of its call. */
const givenUp: Outcome = { kind: 'failed', error: gatewayError('cancelled', 'the call ended first') }

class SpanWriter {
  readonly #parts: WriterParts
  readonly #epoch: Epoch

  constructor(parts: WriterParts) {
    this.#parts = parts
    this.#epoch = new Epoch(parts.clock)
  }

  /** Writes a SERVER span for the call, and a CLIENT span as its child for each attempt. */
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

  /**
   * Returns the name of a span. Leaves out tools that are not listed, because collectors make metrics of span names,
   * and an agent could invent names.
   */
  #nameOf({ server, method, tool }: Call): string {
    return clipped(tool !== undefined && this.#parts.isListed(server, tool) ? `${method} ${tool}` : method)
  }
}

const isFaulted = (record: CallRecord) =>
  injectedFaults.of(record) !== undefined || faultFates.of(record) !== undefined

/** Returns the context of a span of the gateway, with the `tracestate` of its parent. */
function spanContext(traceId: string, spanId: string, parent: SpanContext | undefined): SpanContext {
  const context = { traceId, spanId, traceFlags: TraceFlags.SAMPLED }
  return parent?.traceState === undefined ? context : { ...context, traceState: parent.traceState }
}

function contextOf({ traceId, spanId, sampled, state }: Parent): SpanContext {
  const traceFlags = sampled ? TraceFlags.SAMPLED : TraceFlags.NONE
  const context = { traceId, spanId, traceFlags, isRemote: true }
  return state === undefined ? context : { ...context, traceState: createTraceState(state) }
}
