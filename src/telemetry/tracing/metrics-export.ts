import { type Attributes, type HrTime, ValueType } from '@opentelemetry/api'
import { core, metrics as sdk, resources } from '@opentelemetry/sdk-node'
import type { Cancel, Clock, Millis } from '../../mesh/clock.ts'
import type { Log } from '../log.ts'
import type { Metrics } from '../metrics.ts'
import type { HistogramSeries } from '../metrics/instruments.ts'
import { attributeOf, conventionalName, operations } from '../metrics/operations.ts'
import { clipped } from './attributes.ts'
import { Epoch } from './context.ts'
import { connections, LONGEST_EXPORT_MS, SILENCE_MS, tellDiagnostics } from './pipeline.ts'
import type { MetricsSettings, Variables } from './settings.ts'

/** Longest wait for the last export, in milliseconds. */
const GOODBYE_MS: Millis = 3_000

/** Most data points in one export, because a collector may not accept all points at once. */
const BATCH = 512

interface ExportParts {
  readonly clock: Clock
  readonly log: Log
  readonly metrics: Pick<Metrics, keyof typeof operations>
  readonly env: Variables
  /** The version of Breakwater, sent as the version of the service. */
  readonly version: string
}

interface Family {
  readonly name: string
  readonly help: string
  readonly points: sdk.DataPoint<sdk.Histogram>[]
}

/**
 * Starts to send the durations of OpenTelemetry's conventions to a collector at intervals. Rejects when the exporter
 * refuses the settings.
 */
export async function startMetricsExport(
  settings: MetricsSettings,
  parts: ExportParts,
): Promise<MetricsExport> {
  tellDiagnostics(parts.log, parts.env.OTEL_LOG_LEVEL)
  return new MetricsExport(await createExporter(settings, parts), settings.intervalMs, parts)
}

/** Exports metrics. Each export has the total counts since the start, so a lost export loses no counts. */
class MetricsExport {
  readonly #exporter: Exporter
  readonly #intervalMs: Millis
  readonly #parts: ExportParts
  readonly #epoch: Epoch
  readonly #resource: resources.Resource
  /** Start time of each series. A series that was removed and is created again gets a new start time. */
  readonly #startOf = new WeakMap<HistogramSeries, HrTime>()
  #lookedAt: HrTime
  #cancel: Cancel
  #underWay: Promise<void> = Promise.resolve()
  #quietUntil: Millis = -Infinity
  #closing: Promise<void> | undefined

  constructor(exporter: Exporter, intervalMs: Millis, parts: ExportParts) {
    this.#exporter = exporter
    this.#intervalMs = intervalMs
    this.#parts = parts
    this.#epoch = new Epoch(parts.clock)
    this.#lookedAt = this.#epoch.at(parts.clock.now())
    const own = { 'service.name': 'breakwater', 'service.version': parts.version }
    const detectors = [resources.envDetector, resources.hostDetector]
    this.#resource = resources
      .defaultResource()
      .merge(resources.resourceFromAttributes(own))
      .merge(resources.detectResources({ detectors }))
    this.#cancel = this.#sendLater()
  }

  /** Sends the last counts, for 3 seconds at most. Idempotent, never rejects. */
  close(): Promise<void> {
    return (this.#closing ??= this.#close())
  }

  async #close(): Promise<void> {
    this.#cancel()
    const limit = new Promise<void>((resolve) => this.#parts.clock.after(GOODBYE_MS, resolve))
    const last = this.#underWay.then(() => {
      // Makes sure that a failure of the last export is logged, even soon after another log line.
      this.#quietUntil = -Infinity
      return this.#send()
    })
    const isOver = await Promise.race([last.then(() => true), limit.then(() => false)])
    if (!isOver)
      this.#parts.log.warn('the last metrics were lost: the collector did not accept them before the end')
    this.#exporter.disconnect()
  }

  #sendLater(): Cancel {
    return this.#parts.clock.after(this.#intervalMs, () => {
      this.#underWay = this.#send().then(() => {
        if (this.#closing === undefined) this.#cancel = this.#sendLater()
      })
    })
  }

  async #send(): Promise<void> {
    await this.#resource.waitForAsyncAttributes?.()
    for (const batch of batchesOf(this.#families())) {
      const result = await this.#export(batch)
      if (result.code !== core.ExportResultCode.SUCCESS) return this.#tell(result.error)
    }
  }

  #families(): Family[] {
    this.#epoch.refresh()
    const endTime = this.#epoch.at(this.#parts.clock.now())
    const keys = Object.keys(operations) as (keyof typeof operations)[]
    const families = keys.map((key): Family => {
      const { name, help, buckets } = operations[key]
      const points = this.#parts.metrics[key].all().map((series) => {
        const startTime = this.#startOf.get(series) ?? this.#lookedAt
        this.#startOf.set(series, startTime)
        return { startTime, endTime, attributes: attributesOf(series), value: valueOf(series, buckets) }
      })
      return { name: conventionalName(name), help, points }
    })
    this.#lookedAt = endTime
    return families
  }

  #export(batch: Family): Promise<core.ExportResult> {
    const { exporter, disconnect } = this.#exporter
    const scope = { name: 'breakwater', version: this.#parts.version }
    const failed = (error: Error) => ({ code: core.ExportResultCode.FAILED, error })
    return new Promise((resolve) => {
      const cancel = this.#parts.clock.after(LONGEST_EXPORT_MS, () => {
        disconnect()
        resolve(failed(new Error('the collector took too long')))
      })
      const ended = (result: core.ExportResult) => {
        cancel()
        resolve(result)
      }
      const scopeMetrics = [{ scope, metrics: [dataOf(batch)] }]
      try {
        exporter.export({ resource: this.#resource, scopeMetrics }, ended)
      } catch (error) {
        ended(failed(error as Error))
      }
    })
  }

  /** Logs an error of the export, but only its message: other parts may repeat the sent headers. */
  #tell(error?: Error & { code?: string | number }): void {
    const { clock, log } = this.#parts
    const now = clock.now()
    if (now < this.#quietUntil) return
    this.#quietUntil = now + SILENCE_MS
    log.warn(
      { error: clipped(error?.message ?? ''), code: error?.code },
      'the collector did not accept metrics',
    )
  }
}

function batchesOf(families: readonly Family[]): Family[] {
  return families.flatMap(({ name, help, points }) =>
    Array.from({ length: Math.ceil(points.length / BATCH) }, (_, index) => ({
      name,
      help,
      points: points.slice(index * BATCH, (index + 1) * BATCH),
    })),
  )
}

function dataOf({ name, help, points }: Family): sdk.HistogramMetricData {
  return {
    descriptor: { name, description: help, unit: 's', valueType: ValueType.DOUBLE },
    aggregationTemporality: sdk.AggregationTemporality.CUMULATIVE,
    dataPointType: sdk.DataPointType.HISTOGRAM,
    dataPoints: points,
  }
}

function attributesOf({ labels }: HistogramSeries): Attributes {
  const attributes: Attributes = {}
  for (const [label, value] of Object.entries(labels))
    attributes[attributeOf[label as keyof typeof attributeOf]] = typed(label, value)
  return attributes
}

function typed(label: string, value: string): string | number | boolean {
  if (label === 'server_port') return Number(value)
  return label === 'breakwater_fault_injected' ? true : value
}

function valueOf(series: HistogramSeries, bounds: readonly number[]): sdk.Histogram {
  const values = series.values()
  const upTo = values.slice(0, bounds.length + 1)
  const counts = upTo.map((count, index) => count - (upTo[index - 1] ?? 0))
  const [sum = 0, count = 0] = values.slice(bounds.length + 1)
  return { buckets: { boundaries: [...bounds], counts }, sum, count }
}

interface Exporter {
  readonly exporter: sdk.PushMetricExporter
  /** Ends requests in progress; the exporter stays usable. */
  disconnect(): void
}

async function createExporter(
  { protocol, url }: MetricsSettings,
  parts: Pick<ExportParts, 'env' | 'log'>,
): Promise<Exporter> {
  const options = url === undefined ? {} : { url }
  const { httpAgentOptions, disconnect } = connections(parts, 'METRICS')
  switch (protocol) {
    case 'http/protobuf': {
      const { OTLPMetricExporter } = await import('@opentelemetry/exporter-metrics-otlp-proto')
      return { exporter: new OTLPMetricExporter({ ...options, httpAgentOptions }), disconnect }
    }
    case 'http/json': {
      const { OTLPMetricExporter } = await import('@opentelemetry/exporter-metrics-otlp-http')
      return { exporter: new OTLPMetricExporter({ ...options, httpAgentOptions }), disconnect }
    }
    case 'grpc': {
      const { OTLPMetricExporter } = await import('@opentelemetry/exporter-metrics-otlp-grpc')
      return { exporter: new OTLPMetricExporter(options), disconnect: () => undefined }
    }
  }
}
