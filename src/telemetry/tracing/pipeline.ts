import { type ContextManager, diag, DiagLogLevel, ROOT_CONTEXT, trace } from '@opentelemetry/api'
import { core, NodeSDK, type NodeSDKConfiguration, resources, tracing } from '@opentelemetry/sdk-node'
import type { Clock, Millis } from '../../mesh/clock.ts'
import type { Log } from '../log.ts'
import { clipped } from './attributes.ts'
import type { SpanCounts } from './contract.ts'
import { type EndedSpan, readLimits, type SpanOrigin } from './ended-span.ts'
import type { TracingSettings, Variables } from './settings.ts'

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
export interface Pipeline {
  readonly origin: SpanOrigin
  take(span: EndedSpan): void
  /** Sends what waits, for `limitMs` at most; then the rest is lost. Never rejects. */
  close(limitMs: number): Promise<void>
}

/** Spans that are sent at once: a quarter of what OpenTelemetry has, for calls wait while they are written. */
const BATCH = 128

/**
 * Starts OpenTelemetry's SDK for spans only: metrics are prom-client's, and nothing is instrumented behind our back. Rejects for settings that no
 * exporter takes.
 */
export async function startPipeline(settings: TracingSettings, parts: PipelineParts): Promise<Pipeline> {
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
