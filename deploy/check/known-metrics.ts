import { collectDefaultMetrics, Registry } from 'prom-client'
import { table } from '../../src/telemetry/metrics.ts'

/** A metric as the code declares it. */
export interface KnownMetric {
  readonly name: string
  readonly help: string
  readonly type: string
  readonly labels: readonly string[]
  /** How many series there can be; undefined for metrics of the runtime. */
  readonly bound?: string
}

/** Every metric that the code declares, by name: its own, and those of the Node runtime. */
export function knownMetrics(): Map<string, KnownMetric> {
  return new Map([...table, ...ofRuntime()].map((metric) => [metric.name, metric]))
}

function ofRuntime(): KnownMetric[] {
  const register = new Registry()
  collectDefaultMetrics({ register })
  const declared = register.getMetricsAsArray() as unknown as Declared[]
  return declared.map(({ name, help, type, labelNames = [] }) => ({ name, help, type, labels: labelNames }))
}

/** What prom-client says of a metric, and its types do not. */
interface Declared {
  readonly name: string
  readonly help: string
  readonly type: string
  readonly labelNames?: readonly string[]
}

/** Names that a metric has on the wire: a histogram has three. */
export function seriesNames({ name, type }: KnownMetric): string[] {
  return type === 'histogram' ? ['_bucket', '_sum', '_count'].map((suffix) => name + suffix) : [name]
}
