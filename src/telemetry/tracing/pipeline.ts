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
  /** The version of Breakwater, sent as the version of the service. */
  readonly version: string
  /** The environment of the process. Must be the real one, because the SDK also reads it. */
  readonly env: Variables
}

export interface Pipeline {
  readonly origin: SpanOrigin
  take(span: EndedSpan): void
  /** Sends the waiting spans, for `limitMs` at most; then drops the rest. Never rejects. */
  close(limitMs: number): Promise<void>
}

/** Most spans in one export: a quarter of OpenTelemetry's default, because writing an export delays calls. */
const BATCH = 128

/**
 * Starts OpenTelemetry's SDK for spans only, without automatic instrumentation. Rejects when the exporter refuses the
 * settings.
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
  // The SDK makes its tracer provider available only as the global provider. Registers it for a moment, and removes it
  // again below.
  trace.disable()
  sdk.start()
  // Starts a span only to read the SDK's facts about the process. The span never ends, so it is never exported.
  const model = trace.getTracer('breakwater', version).startSpan('model') as unknown as tracing.ReadableSpan
  trace.disable()
  const { resource, instrumentationScope } = model
  return {
    origin: { resource, instrumentationScope, limits: readLimits(env) },
    take: (span) => bounded.onEnd(span),
    async close(limitMs) {
      const limit = new Promise<void>((resolve) => clock.after(limitMs, resolve))
      // Waits for the host's id first, because the SDK's shutdown does not wait for a batch that waits for this id.
      // Ignores errors, which the exporter counts.
      const complete = Promise.resolve(resource.waitForAsyncAttributes?.()).then(() => setImmediate())
      const sent = complete.then(() => sdk.shutdown()).catch(() => undefined)
      await Promise.race([sent, limit])
      ledger.close(bounded.waiting)
      exporter.disconnect()
    },
  }
}

/** Least time between two reports of losses, in milliseconds: with a collector down, exports fail every few seconds. */
export const SILENCE_MS = 60_000

/** Counts sent and lost spans, and logs losses at intervals. */
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
    // Logs only the message, because the error also has the reply's body, which may repeat the sent headers.
    const why = error === undefined ? {} : { error: clipped(error.message), code: error.code }
    const message =
      cause === 'queue_full' ? 'too many spans waited for the collector' : 'the collector did not accept them'
    log.warn({ ...why, spans: this.#untold, cause }, `spans were lost: ${message}`)
    this.#untold = 0
  }

  /** Counts this many waiting spans as lost. Ignores later reports of an export in progress. */
  close(waiting: number): void {
    const { log, counts } = this.#parts
    if (waiting > 0) counts.dropped(waiting, 'shutdown')
    const spans = this.#untold + waiting
    if (spans > 0) log.warn({ spans }, 'spans were lost: the collector did not accept them before the end')
    this.#isOver = true
  }
}

/**
 * Limits the number of spans that the collector has not accepted yet; drops and counts further spans. The SDK's own
 * processor drops spans without counting them, and its limit does not include the spans being sent.
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

  /** Spans that the collector has not accepted yet. */
  get waiting(): number {
    return this.#waiting
  }

  /** Reduces the number of waiting spans, after spans were sent or lost. */
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
 * Longest time to send a batch, in milliseconds. The gateway needs its own timeout, because the exporter's timeout
 * restarts with each byte of a reply. OpenTelemetry's processor continues with the next batch after the same time.
 */
export const LONGEST_EXPORT_MS = 30_000

interface CountingParts {
  readonly clock: Clock
  readonly ledger: SpanLedger
  /** Called with the number of spans that were sent or lost. */
  readonly settled: (count: number) => void
}

/** Wraps an exporter: counts its sent and lost spans, and ends exports that take too long. */
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
    // Repeats, because the exporter retries by itself after a lost connection without an answer.
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

/** Writes the SDK's messages to our log, from the level in `OTEL_LOG_LEVEL` on. Without the variable, writes none. */
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
  // Replaces the SDK's error handler, which prints the whole error: the collector's text in it may repeat the sent
  // data.
  core.setGlobalErrorHandler((error) => diag.error(typeof error === 'string' ? error : (error.message ?? '')))
}

/**
 * Calls `make` and returns its result. Hides `OTEL_LOG_LEVEL` from the process meanwhile, because the SDK's constructor
 * would replace our logger. The SDK's logger writes to standard output, which may be the connection to an agent.
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

/** Joins only the texts of a message; the other values are spans, and errors with confidential contents. */
const said = (words: readonly unknown[]) => words.filter((word) => typeof word === 'string').join(' ')

/** Creates the exporter for a protocol. The exporter reads all other settings from the process's environment. */
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
      // Needs no `disconnect`: the timeout of gRPC covers the whole export.
      return { exporter: new OTLPTraceExporter(options), disconnect: () => undefined }
    }
  }
}

interface Exporter {
  readonly exporter: tracing.SpanExporter
  /** Ends exports in progress; the exporter stays usable. */
  disconnect(): void
}

/** Creates the connections of an HTTP exporter with the exporter's own settings, so that the gateway can close them. */
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

/**
 * Returns the certificates from the environment:
 * https://opentelemetry.io/docs/specs/otel/protocol/exporter/#configuration-options
 */
function certificates(env: Variables, log: Log, signal: string): Pick<AgentOptions, 'ca' | 'cert' | 'key'> {
  const read = (name: string) => {
    const variables = [`OTEL_EXPORTER_OTLP_${signal}_${name}`, `OTEL_EXPORTER_OTLP_${name}`]
    const variable = variables.find((one) => env[one]?.trim())
    if (variable === undefined) return undefined
    try {
      return readFileSync(env[variable]!.trim())
    } catch (error) {
      log.warn({ error: (error as Error).message }, `${variable} is ignored`)
      return undefined
    }
  }
  return { ca: read('CERTIFICATE'), cert: read('CLIENT_CERTIFICATE'), key: read('CLIENT_KEY') }
}

/**
 * A context manager whose context never changes. The SDK's own uses `AsyncLocalStorage`, which makes every promise of
 * the process slower on Node 20. Breakwater's spans need no context, because they name their parents explicitly.
 */
const stillContext: ContextManager = {
  active: () => ROOT_CONTEXT,
  with: (_, run, self, ...args) => run.apply(self, args),
  bind: (_, target) => target,
  enable: () => stillContext,
  disable: () => stillContext,
}
