import {
  type ContextManager,
  createTraceState,
  diag,
  DiagLogLevel,
  ROOT_CONTEXT,
  type SpanContext,
  SpanKind,
  trace,
  TraceFlags,
} from '@opentelemetry/api'
import { core, NodeSDK, type NodeSDKConfiguration, resources, tracing } from '@opentelemetry/sdk-node'
import type { Call, CallRecord, Outcome } from '../../mesh/call.ts'
import type { Clock, Millis } from '../../mesh/clock.ts'
import { gatewayError } from '../../mesh/errors.ts'
import { Burst, type BurstSize } from '../../mesh/turns.ts'
import type { Log } from '../log.ts'
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
import {
  type AttemptFacts,
  beginAttempt,
  beginTrace,
  type CallTrace,
  endAttempt,
  endTrace,
} from './call-trace.ts'
import { createHead, Epoch, RandomIds } from './context.ts'
import type { SpanCounts, Tracing, TracingParts } from './contract.ts'
import { EndedSpan, readLimits, type SpanOrigin } from './ended-span.ts'
import { type KeepReason, whyKept } from './keep.ts'
import type { Parent } from '../../protocol/trace-parent.ts'
import type { TracingSettings, Variables } from './settings.ts'
import { ATTRIBUTES as A } from './spans.ts'

/** How long the last spans are waited for, in milliseconds. */
const GOODBYE_MS = 3_000

/** Calls whose spans are made together at most; how long their texts may be, in UTF-16 code units; how long they wait. */
const BURST_CALLS = 64
const BURST_TEXT = 1024 * 1024
const BURST_MS: Millis = 100

/** Without retries a call has two spans: a burst has to fit into a queue that still has those of the last one. */
const burstOf = (queue: number): BurstSize => ({
  pieces: Math.max(1, Math.min(BURST_CALLS, queue >> 2)),
  weight: BURST_TEXT,
  ms: BURST_MS,
})

/** Tracing that is on. Loads the SDK, which takes half a second: hence in a file of its own. */
export async function startTracing(settings: TracingSettings, parts: TracingParts): Promise<Tracing> {
  const { clock, log, config } = parts
  const pipeline = await startPipeline(settings, parts)
  const ids = new RandomIds()
  const writer = new SpanWriter({ ...parts, ...pipeline, payloads: config.payloads })
  let told = false
  const ended = new Burst<EndedCall>(burstOf(settings.queue), (call) => {
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
    const reply = outcome.kind === 'answered' ? outcome.result.text.length : 0
    const item = { call, traceId, spanId: trace.spanId, parent, attempts, outcome, kept, at: clock.now() }
    ended.add(item, call.message.text.length + reply)
  }

  const attemptsParts = { clock, ids }
  const callsParts = { ids, head: createHead(settings.sample) }
  let closing: Promise<void> | undefined
  return {
    enabled: true,
    begin: (call) => beginTrace(callsParts, call),
    end: (call, outcome) => endTrace(call, outcome, over),
    beginAttempt: (call) => beginAttempt(attemptsParts, call),
    endAttempt: (call, outcome) => endAttempt(attemptsParts, call, outcome),
    close: () => (closing ??= (ended.flush(), pipeline.close(GOODBYE_MS))),
  }
}

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
}

/** What became of an attempt that was still under way when its call had ended. */
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
    const { origin, take, payloads } = this.#parts
    this.#epoch.refresh()
    const attributes = callAttributes(call, attempts[0], kept)
    const status = addResult(attributes, call, outcome)
    if (outcome.kind === 'rejected') attributes[A.rejectedBy] = outcome.by
    if (payloads) addPayloads(attributes, call, outcome)
    const startTime = this.#epoch.at(call.record.startedAt)
    const endTime = this.#epoch.at(at)
    const before = parent && contextOf(traceId, parent)
    const context = spanContext(traceId, spanId, before)
    const span = new EndedSpan(
      {
        name: this.#nameOf(call),
        kind: SpanKind.SERVER,
        context,
        parent: before,
        startTime,
        endTime,
        status,
        attributes,
      },
      origin,
    )
    const faults = isShaken(call.record) ? new FaultEvents(call.record) : undefined
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
    const { origin, take, peerOf } = this.#parts
    const { call, spanId, outcome = givenUp } = facts
    const attributes = attemptAttributes(facts, peerOf(call, facts.replica))
    const status = addResult(attributes, call, outcome)
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
const isShaken = ({ faults, fates }: CallRecord) => faults !== undefined || fates !== undefined

/** The context of a span of ours, all of which are sent; its state is that of the span above it. */
function spanContext(traceId: string, spanId: string, parent: SpanContext | undefined): SpanContext {
  const context = { traceId, spanId, traceFlags: TraceFlags.SAMPLED }
  return parent?.traceState === undefined ? context : { ...context, traceState: parent.traceState }
}

/** The context of the caller's span. */
function contextOf(traceId: string, { spanId, sampled, state }: Parent): SpanContext {
  const traceFlags = sampled ? TraceFlags.SAMPLED : TraceFlags.NONE
  const context = { traceId, spanId, traceFlags, isRemote: true }
  return state === undefined ? context : { ...context, traceState: createTraceState(state) }
}

interface PipelineParts {
  readonly clock: Clock
  readonly log: Log
  readonly counts: SpanCounts
  /** Our own, as the service's. */
  readonly version: string
  /** The process's own: the SDK reads it by itself. */
  readonly env: Variables
}

/** The way of spans to the collector. */
interface Pipeline {
  readonly origin: SpanOrigin
  take(span: EndedSpan): void
  /** Sends what waits, for `limitMs` at most; then the rest is lost. Never rejects. */
  close(limitMs: number): Promise<void>
}

/** Spans that are sent at once: a quarter of what OpenTelemetry has, for calls wait while they are written. */
const BATCH = 128

/** Starts the SDK for spans only: metrics are prom-client's, and nothing is instrumented behind our back. */
async function startPipeline(settings: TracingSettings, parts: PipelineParts): Promise<Pipeline> {
  const { clock, version, env } = parts
  tellDiagnostics(parts.log, env.OTEL_LOG_LEVEL)
  const counts = untilGivenUp(parts.counts)
  const settled = (count: number) => bounded.settled(count)
  const exporter = new CountingExporter(await createExporter(settings), { ...parts, counts, settled })
  const batch = env.OTEL_BSP_MAX_EXPORT_BATCH_SIZE?.trim()
    ? {}
    : { maxExportBatchSize: Math.min(BATCH, settings.queue) }
  const batches = new tracing.BatchSpanProcessor(exporter, { maxQueueSize: settings.queue, ...batch })
  const bounded = new BoundedProcessor(batches, settings.queue, counts)
  const own = resources.resourceFromAttributes({ 'service.name': 'breakwater', 'service.version': version })
  const options: Partial<NodeSDKConfiguration> = {
    resource: resources.defaultResource().merge(own),
    ...(env.OTEL_NODE_RESOURCE_DETECTORS
      ? {}
      : { resourceDetectors: [resources.envDetector, resources.hostDetector] }),
    sampler: new tracing.AlwaysOnSampler(),
    spanProcessors: [bounded],
    metricReaders: [],
    logRecordProcessors: [],
    instrumentations: [],
    contextManager: stillContext,
    textMapPropagator: null,
  }
  const sdk = keepingLog(() => new NodeSDK(options))
  // The SDK registers a provider for the whole process and shows it nowhere else; ours serves us alone.
  trace.disable()
  sdk.start()
  // Of all that the SDK has read about the process, a span of its own tells; it never ends, so that nobody sees it.
  const model = trace.getTracer('breakwater', version).startSpan('model') as unknown as tracing.ReadableSpan
  trace.disable()
  const { resource, instrumentationScope } = model
  return {
    origin: { resource, instrumentationScope, limits: readLimits(env) },
    take: (span) => bounded.onEnd(span),
    async close(limitMs) {
      const limit = new Promise<void>((resolve) => clock.after(limitMs, resolve))
      // What goes wrong is counted where it does.
      await Promise.race([sdk.shutdown().catch(() => undefined), limit])
      counts.giveUp(bounded.waiting)
    },
  }
}

/** What was given up is lost, whatever an exporter that is still at it tells later. */
function untilGivenUp(counts: SpanCounts): SpanCounts & { giveUp(count: number): void } {
  let over = false
  return {
    exported: (count) => void (over || counts.exported(count)),
    dropped: (count, cause) => void (over || counts.dropped(count, cause)),
    giveUp(count) {
      if (count > 0) counts.dropped(count, 'shutdown')
      over = true
    },
  }
}

/**
 * Lets only so many spans wait, and counts the others. The SDK's own processor drops silently, and does not count those
 * that are being sent: with a slow collector they would come on top.
 */
class BoundedProcessor implements tracing.SpanProcessor {
  readonly #inner: tracing.SpanProcessor
  readonly #most: number
  readonly #counts: SpanCounts
  #waiting = 0

  constructor(inner: tracing.SpanProcessor, most: number, counts: SpanCounts) {
    this.#inner = inner
    this.#most = most
    this.#counts = counts
  }

  /** Spans that the collector has not taken yet. */
  get waiting(): number {
    return this.#waiting
  }

  /** Spans no longer wait: they were sent, or lost on the way. */
  settled(count: number): void {
    this.#waiting -= count
  }

  onStart(): void {}

  onEnd(span: tracing.ReadableSpan): void {
    if (this.#waiting >= this.#most) return this.#counts.dropped(1, 'queue_full')
    this.#waiting++
    this.#inner.onEnd(span)
  }

  forceFlush(): Promise<void> {
    return this.#inner.forceFlush()
  }

  shutdown(): Promise<void> {
    return this.#inner.shutdown()
  }
}

/** How often failures are told at most, in milliseconds: a collector that is down fails every few seconds. */
const SILENCE_MS = 60_000

interface CountingParts {
  readonly clock: Clock
  readonly log: Log
  readonly counts: SpanCounts
  /** Told how many spans no longer wait. */
  readonly settled: (count: number) => void
}

/** Counts what another exporter sends and loses, and says so now and then. */
class CountingExporter implements tracing.SpanExporter {
  readonly #inner: tracing.SpanExporter
  readonly #parts: CountingParts
  #lost = 0
  #quietUntil: Millis = -Infinity

  constructor(inner: tracing.SpanExporter, parts: CountingParts) {
    this.#inner = inner
    this.#parts = parts
  }

  export(spans: tracing.ReadableSpan[], done: (result: core.ExportResult) => void): void {
    const { length } = spans
    const ended = (result: core.ExportResult) => {
      this.#parts.settled(length)
      if (result.code === core.ExportResultCode.SUCCESS) this.#parts.counts.exported(length)
      else this.#failed(length, result.error)
      done(result)
    }
    try {
      this.#inner.export(spans, ended)
    } catch (error) {
      ended({ code: core.ExportResultCode.FAILED, error: error as Error })
    }
  }

  forceFlush(): Promise<void> {
    return this.#inner.forceFlush?.() ?? Promise.resolve()
  }

  shutdown(): Promise<void> {
    return this.#inner.shutdown()
  }

  #failed(count: number, error: Error | undefined): void {
    const { clock, log, counts } = this.#parts
    counts.dropped(count, 'export_failed')
    this.#lost += count
    const now = clock.now()
    if (now < this.#quietUntil) return
    this.#quietUntil = now + SILENCE_MS
    const { message, code } = (error ?? {}) as { message?: string; code?: string | number }
    // No more of it: the body of a reply, which is in there as well, may repeat the headers that we have sent.
    const line = { error: clipped(message ?? ''), code, spans: this.#lost }
    log.warn(line, 'spans were lost: the collector did not take them')
    this.#lost = 0
  }
}

const levels: Readonly<Record<string, DiagLogLevel>> = {
  ERROR: DiagLogLevel.ERROR,
  WARN: DiagLogLevel.WARN,
  INFO: DiagLogLevel.INFO,
  DEBUG: DiagLogLevel.DEBUG,
  VERBOSE: DiagLogLevel.VERBOSE,
  ALL: DiagLogLevel.ALL,
}

/** Has the SDK speak through our log, as far as `OTEL_LOG_LEVEL` asks it to; by default it is silent. */
function tellDiagnostics(log: Log, level: string | undefined): void {
  const logLevel = levels[level?.toUpperCase() ?? ''] ?? DiagLogLevel.NONE
  const logger = {
    error: (...words: unknown[]) => log.error(said(words)),
    warn: (...words: unknown[]) => log.warn(said(words)),
    info: (...words: unknown[]) => log.info(said(words)),
    debug: (...words: unknown[]) => log.debug(said(words)),
    verbose: (...words: unknown[]) => log.trace(said(words)),
  }
  diag.setLogger(logger, { logLevel, suppressOverrideMessage: true })
  // The SDK's own handler prints all of an error: also what the collector said, which may be what we have sent it.
  core.setGlobalErrorHandler((error) => diag.error(typeof error === 'string' ? error : (error.message ?? '')))
}

/**
 * What `make` makes, without the logger that the SDK's constructor puts in place of ours: it writes to the standard
 * output, which may be the wire of an agent. A variable of the process is all that it asks.
 */
function keepingLog<T>(make: () => T): T {
  const level = process.env.OTEL_LOG_LEVEL
  Reflect.deleteProperty(process.env, 'OTEL_LOG_LEVEL')
  try {
    return make()
  } finally {
    if (level !== undefined) process.env.OTEL_LOG_LEVEL = level
  }
}

/** Only what is text: the rest are spans, and errors with all that is in them. */
const said = (words: readonly unknown[]) => words.filter((word) => typeof word === 'string').join(' ')

/** The exporter for a protocol. All else that it needs to know it reads from the process's environment. */
async function createExporter({ protocol, url }: TracingSettings): Promise<tracing.SpanExporter> {
  const options = url === undefined ? {} : { url }
  switch (protocol) {
    case 'http/protobuf': {
      const { OTLPTraceExporter } = await import('@opentelemetry/exporter-trace-otlp-proto')
      return new OTLPTraceExporter(options)
    }
    case 'http/json': {
      const { OTLPTraceExporter } = await import('@opentelemetry/exporter-trace-otlp-http')
      return new OTLPTraceExporter(options)
    }
    case 'grpc': {
      const { OTLPTraceExporter } = await import('@opentelemetry/exporter-trace-otlp-grpc')
      return new OTLPTraceExporter(options)
    }
  }
}

/**
 * A context that never changes. The SDK's own is an `AsyncLocalStorage`, which on Node 20 makes every promise of the
 * process dearer from its first use on; spans get their parents by hand here.
 */
const stillContext: ContextManager = {
  active: () => ROOT_CONTEXT,
  with: (_, run, self, ...args) => run.apply(self, args),
  bind: (_, target) => target,
  enable: () => stillContext,
  disable: () => stillContext,
}
