import { readFileSync } from 'node:fs'
import { Agent as HttpAgent } from 'node:http'
import { type AgentOptions, Agent as HttpsAgent } from 'node:https'
import { setImmediate } from 'node:timers/promises'
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
  const ledger = new SpanLedger(parts)
  const settled = (count: number) => bounded.settled(count)
  const exporter = new CountingExporter(await createExporter(settings, parts), { clock, ledger, settled })
  const batch = env.OTEL_BSP_MAX_EXPORT_BATCH_SIZE?.trim()
    ? {}
    : { maxExportBatchSize: Math.min(BATCH, settings.queue) }
  const batches = new tracing.BatchSpanProcessor(exporter, { maxQueueSize: settings.queue, ...batch })
  const bounded = new BoundedProcessor(batches, settings.queue, ledger)
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
  // A span of its own shows all that the SDK has read about the process; the span never ends, so that nobody sees it.
  const model = trace.getTracer('breakwater', version).startSpan('model') as unknown as tracing.ReadableSpan
  trace.disable()
  const { resource, instrumentationScope } = model
  return {
    origin: { resource, instrumentationScope, limits: readLimits(env) },
    take: (span) => bounded.onEnd(span),
    async close(limitMs) {
      const limit = new Promise<void>((resolve) => clock.after(limitMs, resolve))
      // The SDK does not wait for a batch that itself waits for the host's id. What goes wrong is counted where it does.
      const complete = Promise.resolve(resource.waitForAsyncAttributes?.()).then(() => setImmediate())
      const sent = complete.then(() => sdk.shutdown()).catch(() => undefined)
      await Promise.race([sent, limit])
      ledger.close(bounded.waiting)
      exporter.disconnect()
    },
  }
}

/** How often losses are told at most, in milliseconds: a collector that is down fails every few seconds. */
export const SILENCE_MS = 60_000

/** Counts what became of the spans, and reports losses now and then. */
class SpanLedger {
  readonly #parts: Pick<PipelineParts, 'clock' | 'log' | 'counts'>
  #untold = 0
  #quietUntil: Millis = -Infinity
  #isOver = false

  constructor(parts: Pick<PipelineParts, 'clock' | 'log' | 'counts'>) {
    this.#parts = parts
  }

  exported(count: number): void {
    if (!this.#isOver) this.#parts.counts.exported(count)
  }

  lost(
    count: number,
    cause: 'queue_full' | 'export_failed',
    error?: Error & { code?: string | number },
  ): void {
    if (this.#isOver) return
    const { clock, log, counts } = this.#parts
    counts.dropped(count, cause)
    this.#untold += count
    const now = clock.now()
    if (now < this.#quietUntil) return
    this.#quietUntil = now + SILENCE_MS
    // No more of it: the body of a reply, which is in there as well, may repeat the headers that we have sent.
    const why = error === undefined ? {} : { error: clipped(error.message), code: error.code }
    const message =
      cause === 'queue_full' ? 'too many waited for the collector' : 'the collector did not take them'
    log.warn({ ...why, spans: this.#untold, cause }, `spans were lost: ${message}`)
    this.#untold = 0
  }

  /** So many that still wait are given up: they are lost, whatever an exporter that is still at it tells later. */
  close(waiting: number): void {
    const { log, counts } = this.#parts
    if (waiting > 0) counts.dropped(waiting, 'shutdown')
    const spans = this.#untold + waiting
    if (spans > 0) log.warn({ spans }, 'spans were lost: the collector did not take them before the end')
    this.#isOver = true
  }
}

/**
 * Lets only so many spans wait, and counts the others. The SDK's own processor drops silently, and does not count those
 * that are being sent: with a slow collector they would come on top.
 */
class BoundedProcessor implements tracing.SpanProcessor {
  readonly #inner: tracing.SpanProcessor
  readonly #most: number
  readonly #ledger: SpanLedger
  #waiting = 0

  constructor(inner: tracing.SpanProcessor, most: number, ledger: SpanLedger) {
    this.#inner = inner
    this.#most = most
    this.#ledger = ledger
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
    if (this.#waiting >= this.#most) return this.#ledger.lost(1, 'queue_full')
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

/**
 * How long a batch may take to be sent, in milliseconds. OpenTelemetry's processor goes on with the next one after as long, and its
 * exporter's own timeout begins anew with each byte of a reply.
 */
export const LONGEST_EXPORT_MS = 30_000

interface CountingParts {
  readonly clock: Clock
  readonly ledger: SpanLedger
  /** Told how many spans no longer wait. */
  readonly settled: (count: number) => void
}

/** Counts what another exporter sends and loses, and ends what takes it too long. */
class CountingExporter implements tracing.SpanExporter {
  readonly #inner: Exporter
  readonly #parts: CountingParts

  constructor(inner: Exporter, parts: CountingParts) {
    this.#inner = inner
    this.#parts = parts
  }

  export(spans: tracing.ReadableSpan[], done: (result: core.ExportResult) => void): void {
    const { length } = spans
    const { clock, ledger, settled } = this.#parts
    const { exporter, disconnect } = this.#inner
    // More than once: where nothing has been answered yet it tries again by itself.
    const overdue = () => {
      disconnect()
      cancel = clock.after(LONGEST_EXPORT_MS, overdue)
    }
    let cancel = clock.after(LONGEST_EXPORT_MS, overdue)
    const ended = (result: core.ExportResult) => {
      cancel()
      settled(length)
      if (result.code === core.ExportResultCode.SUCCESS) ledger.exported(length)
      else ledger.lost(length, 'export_failed', result.error)
      done(result)
    }
    try {
      exporter.export(spans, ended)
    } catch (error) {
      ended({ code: core.ExportResultCode.FAILED, error: error as Error })
    }
  }

  /** Ends what is under way. */
  disconnect(): void {
    this.#inner.disconnect()
  }

  forceFlush(): Promise<void> {
    return this.#inner.exporter.forceFlush?.() ?? Promise.resolve()
  }

  shutdown(): Promise<void> {
    return this.#inner.exporter.shutdown()
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
export function tellDiagnostics(log: Log, level: string | undefined): void {
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
 * Returns the result of `make`, without the logger that the SDK's constructor puts in place of ours. The SDK's logger writes to
 * the standard output, which may be the wire of an agent. The constructor only looks at one variable of the process.
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
async function createExporter(
  { protocol, url }: TracingSettings,
  parts: Pick<PipelineParts, 'env' | 'log'>,
): Promise<Exporter> {
  const options = url === undefined ? {} : { url }
  const { httpAgentOptions, disconnect } = connections(parts, 'TRACES')
  switch (protocol) {
    case 'http/protobuf': {
      const { OTLPTraceExporter } = await import('@opentelemetry/exporter-trace-otlp-proto')
      return { exporter: new OTLPTraceExporter({ ...options, httpAgentOptions }), disconnect }
    }
    case 'http/json': {
      const { OTLPTraceExporter } = await import('@opentelemetry/exporter-trace-otlp-http')
      return { exporter: new OTLPTraceExporter({ ...options, httpAgentOptions }), disconnect }
    }
    case 'grpc': {
      const { OTLPTraceExporter } = await import('@opentelemetry/exporter-trace-otlp-grpc')
      // Its timeout is one for all of a call.
      return { exporter: new OTLPTraceExporter(options), disconnect: () => undefined }
    }
  }
}

interface Exporter {
  readonly exporter: tracing.SpanExporter
  /** Ends what is under way; the exporter can be used as before. */
  disconnect(): void
}

/** The connections of an exporter over HTTP; made as its own are, so that they can be ended. */
export function connections({ env, log }: Pick<PipelineParts, 'env' | 'log'>, signal: 'TRACES' | 'METRICS') {
  let agent: HttpAgent | undefined
  return {
    httpAgentOptions: (protocol: string): HttpAgent =>
      (agent =
        protocol === 'https:'
          ? new HttpsAgent({ keepAlive: true, ...certificates(env, log, signal) })
          : new HttpAgent({ keepAlive: true })),
    disconnect: () => void agent?.destroy(),
  }
}

/** https://opentelemetry.io/docs/specs/otel/protocol/exporter/#configuration-options */
function certificates(env: Variables, log: Log, signal: string): Pick<AgentOptions, 'ca' | 'cert' | 'key'> {
  const read = (name: string) => {
    const file =
      env[`OTEL_EXPORTER_OTLP_${signal}_${name}`]?.trim() || env[`OTEL_EXPORTER_OTLP_${name}`]?.trim()
    if (!file) return undefined
    try {
      return readFileSync(file)
    } catch (error) {
      log.warn({ error: (error as Error).message }, `OTEL_EXPORTER_OTLP_${name} is passed over`)
      return undefined
    }
  }
  return { ca: read('CERTIFICATE'), cert: read('CLIENT_CERTIFICATE'), key: read('CLIENT_KEY') }
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
