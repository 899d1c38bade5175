import type { Metric, Registry } from 'prom-client'
import { Series, type Line, type LineNames } from './spread-series.ts'

export interface SpreadOptions<Label extends string> {
  readonly name: string
  readonly help: string
  readonly labelNames: readonly Label[]
  /** Upper bounds, ascending. */
  readonly buckets: readonly number[]
  readonly registers: readonly Registry[]
}

/**
 * A histogram for hot paths. prom-client's hashes and checks the labels at every observation, twice if it has an
 * exemplar, and has no way to be told of many at once, as its counter has: so the counts are kept here, and a
 * registry of prom-client reads them like those of a metric of its own.
 */
export class Spread<Label extends string> {
  readonly name: string
  readonly help: string
  readonly type = 'histogram'
  readonly aggregator = 'sum'
  readonly #names: readonly Label[]
  readonly #buckets: readonly number[]
  readonly #lineNames: LineNames
  readonly #bounds: readonly Line['bound'][]
  readonly #series = new Map<string, Series>()

  constructor({ name, help, labelNames, buckets, registers }: SpreadOptions<Label>) {
    this.name = name
    this.help = help
    this.#names = labelNames
    this.#buckets = buckets
    this.#lineNames = { bucket: `${name}_bucket`, sum: `${name}_sum`, count: `${name}_count` }
    this.#bounds = [...buckets, '+Inf'].map((le) => ({ le }))
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

  /** Removes the histograms whose labels include these. */
  forget(some: Readonly<Partial<Record<Label, string>>>): void {
    const wanted = Object.entries(some)
    for (const [key, { labels }] of this.#series)
      if (wanted.every(([name, value]) => labels[name] === value)) this.#series.delete(key)
  }

  /** What there is, as of now. */
  lines(): Line[] {
    const lines: Line[] = []
    for (const series of this.#series.values()) series.addTo(lines, this.#lineNames, this.#bounds)
    return lines
  }

  /** The same, for a registry of prom-client. */
  get() {
    const { name, help, type, aggregator } = this
    const values = this.lines().map(({ bound, labels, ...line }) => ({
      ...line,
      labels: { ...bound, ...labels },
    }))
    return Promise.resolve({ name, help, type, aggregator, values })
  }

  /** For a registry: forgets all that was observed. */
  reset(): void {
    for (const series of this.#series.values()) series.reset()
  }
}
