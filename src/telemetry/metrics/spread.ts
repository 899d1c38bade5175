import type { Metric, Registry } from 'prom-client'
import type { Format, Labels } from './format.ts'
import { Series, type Line } from './spread-series.ts'

export interface SpreadOptions<Label extends string> {
  readonly name: string
  readonly help: string
  readonly labelNames: readonly Label[]
  /** Upper bounds, ascending. */
  readonly buckets: readonly number[]
  readonly registers: readonly Registry[]
}

/**
 * A histogram for hot paths and for thousands of series. prom-client's hashes and checks the labels at every
 * observation, twice if it has an exemplar, and can only be read as a whole: so the counts are kept here, and a
 * registry of prom-client reads them like those of a metric of its own.
 */
export class Spread<Label extends string> {
  readonly name: string
  readonly help: string
  readonly type = 'histogram'
  readonly aggregator = 'sum'
  readonly #names: readonly Label[]
  readonly #buckets: readonly number[]
  readonly #frame: readonly Line[]
  readonly #series = new Map<string, Series>()

  constructor({ name, help, labelNames, buckets, registers }: SpreadOptions<Label>) {
    this.name = name
    this.help = help
    this.#names = labelNames
    this.#buckets = buckets
    this.#frame = [
      ...[...buckets, '+Inf'].map((le) => ({ metricName: `${name}_bucket`, bound: { le } })),
      { metricName: `${name}_sum`, bound: {} },
      { metricName: `${name}_count`, bound: {} },
    ]
    for (const registry of registers) registry.registerMetric(this as unknown as Metric)
    if (labelNames.length === 0) this.series({} as Record<Label, string>)
  }

  /** How many histograms there are, each of as many series as buckets and three more. */
  get size(): number {
    return this.#series.size
  }

  /** The histogram with these labels, to be kept by whoever observes often, until it is forgotten. */
  series(labels: Readonly<Record<Label, string>>): Series {
    let key = ''
    for (const name of this.#names) key += `${labels[name]}\0`
    const known = this.#series.get(key)
    if (known !== undefined) return known
    const made = new Series(labels, this.#buckets)
    this.#series.set(key, made)
    return made
  }

  /** Removes these histograms: one look at each. */
  forget(isGone: (labels: Labels) => boolean): void {
    for (const [key, { labels }] of this.#series) if (isGone(labels)) this.#series.delete(key)
  }

  /** The lines of one histogram after the other, each as of when they are asked for; exemplars in OpenMetrics only. */
  *written(format: Format): Generator<string> {
    for (const series of this.#series.values()) yield series.written(this.#frame, format === 'openmetrics')
  }

  /** All its lines as of now. */
  lines() {
    return [...this.#series.values()].flatMap((series) => {
      const values = series.values()
      return this.#frame.map(({ metricName, bound }, line) => ({
        metricName,
        labels: { ...bound, ...series.labels },
        value: values[line]!,
        exemplar: series.exemplar(line),
      }))
    })
  }

  /** The same, for a registry of prom-client. */
  get() {
    const { name, help, type, aggregator } = this
    return Promise.resolve({ name, help, type, aggregator, values: this.lines() })
  }

  /** For a registry: forgets all that was observed. */
  reset(): void {
    for (const series of this.#series.values()) series.reset()
  }
}
