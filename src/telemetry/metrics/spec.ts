import type { Registry } from 'prom-client'
import type { MetricSpec } from '../../mesh/metric-spec.ts'
import { Gauge, Histogram, Counter } from './instruments.ts'

/** The metrics of a table, under the same keys. */
export type MetricsOf<Table extends Readonly<Record<string, MetricSpec>>> = {
  readonly [Key in keyof Table]: Table[Key] extends MetricSpec<infer Type, infer Label>
    ? Type extends 'counter'
      ? Counter<Label>
      : Type extends 'gauge'
        ? Gauge<Label>
        : Histogram<Label>
    : never
}

/** Makes the metrics of a table. */
export function build<Table extends Readonly<Record<string, MetricSpec>>>(
  table: Table,
  registry: Registry,
): MetricsOf<Table> {
  const made = Object.entries(table).map(([key, spec]) => [key, create(spec, registry)])
  return Object.fromEntries(made) as MetricsOf<Table>
}

/** Makes one metric. */
export function create({ type, name, help, labels, buckets }: MetricSpec, registry: Registry) {
  const common = { name, help, labelNames: [...labels], registers: [registry] }
  switch (type) {
    case 'counter':
      return new Counter(common)
    case 'gauge':
      return new Gauge(common)
    case 'histogram':
      return new Histogram({ ...common, buckets })
  }
}
