import type { Metric, Registry } from 'prom-client'
import { type Exemplar, type Format, headOf, type Labels, numeral, pointer } from './format.ts'
import type { MetricSpec } from '../../mesh/metric-spec.ts'

/** A series of a metric. Frequent callers keep a reference until the series is removed. */
export interface Series {
  readonly labels: Labels
  value: number
  /** The beginning of the series' line; undefined until first written. */
  head: string | undefined
  /** True when a scraper has read the series. */
  isScraped: boolean
}

/**
 * The value that a scraper gets when it reads a series for the first time. `as_zero`: 0 first, and the counts at the
 * second reading. Prometheus computes an increase from two readings, so counts before the first reading would otherwise
 * be in no rate. `as_is`: the counts, because they are old.
 */
export type News = 'as_zero' | 'as_is'

interface SeriesSetOptions<Label extends string> {
  readonly name: string
  readonly help: string
  readonly labelNames: readonly Label[]
  readonly registers: readonly Registry[]
}

/**
 * A metric with a value for each set of labels: the common part of counters and gauges. Replaces prom-client's metrics,
 * which hash and check the labels at every change, and can only be read as a whole. A prom-client registry can read
 * these metrics like its own.
 */
export abstract class SeriesSet<Label extends string> {
  abstract readonly type: 'counter' | 'gauge'
  readonly name: string
  readonly help: string
  readonly aggregator = 'sum'
  protected seriesByKey = new Map<string, Series>()
  /** The series before the last reset, reused because most series return with the same beginning of their line. */
  protected before: ReadonlyMap<string, Series> | undefined
  readonly #names: readonly Label[]

  constructor({ name, help, labelNames, registers }: SeriesSetOptions<Label>) {
    this.name = name
    this.help = help
    this.#names = labelNames
    for (const registry of registers) registry.registerMetric(this as unknown as Metric)
    if (labelNames.length === 0) this.series()
  }

  get size(): number {
    return this.seriesByKey.size
  }

  /** True when the series of this metric have this label. */
  has(label: string): boolean {
    return (this.#names as readonly string[]).includes(label)
  }

  /** Returns the series with these labels. Foreign names must first pass through `labelValue`. */
  series(labels = {} as Readonly<Record<Label, string>>): Series {
    let key = ''
    for (const name of this.#names) key += `${labels[name]}\0`
    const known = this.seriesByKey.get(key)
    if (known !== undefined) return known
    const series = this.#made(key, labels)
    this.seriesByKey.set(key, series)
    return series
  }

  /** Adds to a series, 1 by default. */
  inc(labels?: Readonly<Record<Label, string>>, by = 1): void {
    this.series(labels).value += by
  }

  /** Removes the series for whose labels `isGone` returns true, in a single pass. */
  forget(isGone: (labels: Labels) => boolean): void {
    for (const [key, { labels }] of this.seriesByKey) if (isGone(labels)) this.seriesByKey.delete(key)
  }

  /**
   * Yields the lines of all series, each with its current value. `news` only for Prometheus: the value of a series at
   * its first reading.
   */
  *written(news?: News): Generator<string> {
    for (const series of this.seriesByKey.values())
      yield `${(series.head ??= headOf(this.name, series.labels))}${numeral(this.reading(series, news))}\n`
  }

  protected reading({ value }: Series, _news: News | undefined): number {
    return value
  }

  /** Returns the values in the form that a prom-client registry reads. */
  get() {
    const { name, help, type, aggregator } = this
    const values = Array.from(this.seriesByKey.values(), ({ labels, value }) => ({ labels, value }))
    return Promise.resolve({ name, help, type, aggregator, values })
  }

  abstract reset(): void

  #made(key: string, labels: Readonly<Record<Label, string>>): Series {
    const known = this.before?.get(key)
    if (known !== undefined) {
      known.value = 0
      return known
    }
    // A series without labels needs no first reading as 0, because it exists from the start of the gateway.
    return { labels: present(this.#names, labels), value: 0, head: undefined, isScraped: key === '' }
  }
}

/** A counter: the values of its series only grow. */
export class Counter<Label extends string> extends SeriesSet<Label> {
  readonly type = 'counter'

  reset(): void {
    for (const series of this.seriesByKey.values()) series.value = 0
  }

  /** Marks all present series as known: a scraper gets their counts at once, as for counts of an earlier process. */
  markKnown(): void {
    for (const series of this.seriesByKey.values()) series.isScraped = true
  }

  protected override reading(series: Series, news: News | undefined): number {
    if (news === undefined || series.isScraped) return series.value
    series.isScraped = true
    return news === 'as_zero' ? 0 : series.value
  }
}

/** A gauge. If a gauge is set at each scrape, it is reset before, so that series not set again disappear. */
export class Gauge<Label extends string> extends SeriesSet<Label> {
  readonly type = 'gauge'

  set(value: number): void
  set(labels: Readonly<Record<Label, string>>, value: number): void
  set(...given: [number] | [Readonly<Record<Label, string>>, number]): void {
    if (given.length === 1) this.series().value = given[0]
    else this.series(given[0]).value = given[1]
  }

  reset(): void {
    this.before = this.seriesByKey
    this.seriesByKey = new Map()
  }
}

interface HistogramOptions<Label extends string> {
  readonly name: string
  readonly help: string
  readonly labelNames: readonly Label[]
  /** Upper bounds, ascending. */
  readonly buckets: readonly number[]
  readonly registers: readonly Registry[]
}

/**
 * A histogram for frequent observations and thousands of series. Replaces prom-client's histogram, which hashes and
 * checks the labels at every observation, and can only be read as a whole. A prom-client registry can read this
 * histogram like its own.
 */
export class Histogram<Label extends string> {
  readonly name: string
  readonly help: string
  readonly type = 'histogram'
  readonly aggregator = 'sum'
  readonly #names: readonly Label[]
  readonly #buckets: readonly number[]
  readonly #frame: readonly Line[]
  readonly #series = new Map<string, HistogramSeries>()

  constructor({ name, help, labelNames, buckets, registers }: HistogramOptions<Label>) {
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

  /** Number of sets of labels; each has as many lines as buckets, plus three. */
  get size(): number {
    return this.#series.size
  }

  has(label: string): boolean {
    return (this.#names as readonly string[]).includes(label)
  }

  /** Returns the histogram with these labels. Frequent callers keep a reference until the histogram is removed. */
  series(labels: Readonly<Record<Label, string>>): HistogramSeries {
    let key = ''
    for (const name of this.#names) key += `${labels[name]}\0`
    const known = this.#series.get(key)
    if (known !== undefined) return known
    const made = new HistogramSeries(present(this.#names, labels), this.#buckets)
    this.#series.set(key, made)
    return made
  }

  /** Returns the histograms of all sets of labels. */
  all(): HistogramSeries[] {
    return [...this.#series.values()]
  }

  /** Removes the histograms for whose labels `isGone` returns true, in a single pass. */
  forget(isGone: (labels: Labels) => boolean): void {
    for (const [key, { labels }] of this.#series) if (isGone(labels)) this.#series.delete(key)
  }

  /**
   * Yields the lines of each histogram, with current values. Only OpenMetrics gets exemplars; only Prometheus uses
   * `news`.
   */
  *written(format: Format, news?: News): Generator<string> {
    for (const series of this.#series.values())
      yield series.written(this.#frame, format === 'openmetrics', news)
  }

  /** Returns all lines with their current values. */
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

  /** Returns the values in the form that a prom-client registry reads. */
  get() {
    const { name, help, type, aggregator } = this
    return Promise.resolve({ name, help, type, aggregator, values: this.lines() })
  }

  /** Removes all observations; called by a registry. */
  reset(): void {
    for (const series of this.#series.values()) series.reset()
  }
}

/** Returns the labels in the order of `names`, without empty labels, which Prometheus treats as absent. */
function present<Label extends string>(
  names: readonly Label[],
  labels: Readonly<Record<Label, string>>,
): Labels {
  const held: Record<string, string> = {}
  for (const name of names) if (labels[name] !== '') held[name] = labels[name]
  return held
}

/** A line of the output that each histogram of a metric has. */
interface Line {
  readonly metricName: string
  /** The label with the upper bound, for the line of a bucket. */
  readonly bound: Readonly<Record<string, string | number>>
}

/** OpenMetrics' limit for an exemplar: most characters of all its label names and values together. */
const MAX_EXEMPLAR = 128

/** The histogram of one set of labels. */
export class HistogramSeries {
  readonly labels: Labels
  readonly #buckets: readonly number[]
  /** The count of each bucket, not cumulative; the last is for values above all bounds. */
  readonly #counts: number[]
  readonly #exemplars: (Exemplar | undefined)[]
  #sum = 0
  /** The beginnings of the histogram's lines; undefined until first written. */
  #heads: readonly string[] | undefined
  #isScraped = false

  constructor(labels: Labels, buckets: readonly number[]) {
    this.labels = labels
    this.#buckets = buckets
    this.#counts = new Array<number>(buckets.length + 1).fill(0)
    this.#exemplars = new Array<Exemplar | undefined>(buckets.length + 1).fill(undefined)
  }

  /** Counts a value. With a trace id, the value becomes the exemplar of its bucket, unless the id is too long. */
  observe(value: number, traceId?: string, wallMs = 0): void {
    const buckets = this.#buckets
    let index = 0
    while (index < buckets.length && value > buckets[index]!) index++
    this.#counts[index]!++
    this.#sum += value
    if (traceId === undefined || 'trace_id'.length + traceId.length > MAX_EXEMPLAR) return
    this.#exemplars[index] = { labelSet: { trace_id: traceId }, value, timestamp: wallMs / 1_000 }
  }

  /** Returns the values of the lines: each bucket including the buckets below, the sum, and the count. */
  values(): number[] {
    const values: number[] = []
    let total = 0
    for (const count of this.#counts) values.push((total += count))
    values.push(this.#sum, total)
    return values
  }

  /** Returns the latest exemplar for the line of a bucket; undefined for other lines. */
  exemplar(line: number): Exemplar | undefined {
    return this.#exemplars[line]
  }

  /** Returns the text of all lines, with values of the same moment. */
  written(lines: readonly Line[], withExemplars: boolean, news?: News): string {
    const isHeldBack = news === 'as_zero' && !this.#isScraped
    if (news !== undefined) this.#isScraped = true
    const heads = (this.#heads ??= lines.map(({ metricName, bound }) =>
      headOf(metricName, { ...bound, ...this.labels }),
    ))
    const values = this.values()
    let text = ''
    for (let line = 0; line < heads.length; line++) {
      const exemplar = withExemplars && !isHeldBack ? this.#exemplars[line] : undefined
      const value = isHeldBack ? 0 : values[line]!
      text += `${heads[line]}${numeral(value)}${exemplar === undefined ? '' : pointer(exemplar)}\n`
    }
    return text
  }

  reset(): void {
    this.#counts.fill(0)
    this.#exemplars.fill(undefined)
    this.#sum = 0
  }
}

/** The type of the metrics of a table, with the same keys. */
export type MetricsOf<Table extends Readonly<Record<string, MetricSpec>>> = {
  readonly [Key in keyof Table]: Table[Key] extends MetricSpec<infer Type, infer Label>
    ? Type extends 'counter'
      ? Counter<Label>
      : Type extends 'gauge'
        ? Gauge<Label>
        : Histogram<Label>
    : never
}

/** Creates the metrics of a table. */
export function build<Table extends Readonly<Record<string, MetricSpec>>>(
  table: Table,
  registry: Registry,
): MetricsOf<Table> {
  const made = Object.entries(table).map(([key, spec]) => [key, create(spec, registry)])
  return Object.fromEntries(made) as MetricsOf<Table>
}

/** Creates a metric from its spec. */
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
