import { trace, type Tracer } from '@opentelemetry/api'
import { NodeSDK, resources, tracing, type NodeSDKConfiguration } from '@opentelemetry/sdk-node'
import type { Clock } from '../../mesh/clock.ts'
import type { Log } from '../log.ts'
import { BoundedProcessor } from './bounded-processor.ts'
import { CountingExporter } from './counting-exporter.ts'
import type { SpanCounts } from './counts.ts'
import { keepingLog, tellDiagnostics } from './diagnostics.ts'
import { createExporter } from './exporters.ts'
import { PreparedIds } from './prepared-ids.ts'
import type { TracingSettings, Variables } from './settings.ts'
import { stillContext } from './still-context.ts'

export interface PipelineParts {
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
  readonly tracer: Tracer
  /** Gives the next span its ids. */
  readonly prepared: PreparedIds
  /** Sends what waits, for `limitMs` at most; then the rest is lost. Never rejects. */
  close(limitMs: number): Promise<void>
}

/** Spans that are sent at once: a quarter of what OpenTelemetry has, for calls wait while they are written. */
const BATCH = 128

/** Starts the SDK for spans only: metrics are prom-client's, and nothing is instrumented behind our back. */
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
  const prepared = new PreparedIds()
  const own = resources.resourceFromAttributes({ 'service.name': 'breakwater', 'service.version': version })
  const options: Partial<NodeSDKConfiguration> = {
    resource: resources.defaultResource().merge(own),
    ...(env.OTEL_NODE_RESOURCE_DETECTORS
      ? {}
      : { resourceDetectors: [resources.envDetector, resources.hostDetector] }),
    idGenerator: prepared,
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
  const tracer = trace.getTracer('breakwater', version)
  trace.disable()
  return {
    tracer,
    prepared,
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
