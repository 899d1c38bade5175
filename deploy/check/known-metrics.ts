import { collectDefaultMetrics, Registry } from 'prom-client'
import { table } from '../../src/telemetry/metrics.ts'

/** A metric as the code declares metrics. */
export interface KnownMetric {
  readonly name: string
  readonly help: string
  readonly type: string
  readonly labels: readonly string[]
  /** Largest number of series; undefined for metrics of the runtime. */
  readonly bound?: string
}

/** Returns every declared metric by name: our own metrics, and metrics of the Node runtime. */
export function knownMetrics(): Map<string, KnownMetric> {
  return new Map([...table, ...ofRuntime()].map((metric) => [metric.name, metric]))
}

function ofRuntime(): KnownMetric[] {
  const register = new Registry()
  collectDefaultMetrics({ register })
  const declared = register.getMetricsAsArray() as unknown as Declared[]
  return declared.map(({ name, help, type, labelNames = [] }) => ({ name, help, type, labels: labelNames }))
}

/** Fields of a prom-client metric that its types omit. */
interface Declared {
  readonly name: string
  readonly help: string
  readonly type: string
  readonly labelNames?: readonly string[]
}

/** Returns a metric's names on the wire: a histogram has three. */
export function seriesNames({ name, type }: KnownMetric): string[] {
  return type === 'histogram' ? ['_bucket', '_sum', '_count'].map((suffix) => name + suffix) : [name]
}
