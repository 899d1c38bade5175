import type { Registry } from 'prom-client'
import { Cells } from './cells.ts'
import { headOf, introOf, numeral, type Format } from './format.ts'
import { Spread } from './spread.ts'

/** A metric of prom-client and its series, as its `get()` gives them. */
interface Family {
  readonly name: string
  readonly help: string
  readonly type: unknown
  readonly values: readonly {
    readonly metricName?: string
    readonly labels: Readonly<Record<string, string | number | undefined>>
    readonly value: number
  }[]
}

/**
 * Writes all metrics of a registry, one after the other, and of each a line or a few at a time. Not left to prom-client, whose text of thousands of
 * series stalls everything, and which, after it has written OpenMetrics once, has renamed its counters for the other
 * format too.
 */
export async function* familiesOf(registry: Registry, format: Format): AsyncGenerator<Iterable<string>> {
  for (const { name } of registry.getMetricsAsArray()) {
    const metric: unknown = registry.getSingleMetric(name)
    if (metric instanceof Cells || metric instanceof Spread) {
      yield [introOf(name, metric.help, metric.type, format)]
      yield metric.written(format)
    } else {
      const family = await (metric as { get(): Promise<Family> }).get()
      yield [introOf(name, family.help, String(family.type), format)]
      yield linesOf(family)
    }
  }
}

function* linesOf({ name, values }: Family): Generator<string> {
  for (const { metricName = name, labels, value } of values)
    yield `${headOf(metricName, labels)}${numeral(value)}\n`
}
