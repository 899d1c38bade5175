/** A trace in which one of the observations of a bucket can be looked at. */
export interface Exemplar {
  readonly labelSet: Readonly<Record<string, string>>
  readonly value: number
  /** Seconds since the Unix epoch. */
  readonly timestamp: number
}

/** One line of an exposition. Its label objects are always the same ones, so that a writer may keep their text. */
export interface Line {
  readonly metricName: string
  /** The bucket's bound, if it is a bucket's. */
  readonly bound: Readonly<Record<string, string | number>>
  readonly labels: Readonly<Record<string, string>>
  readonly value: number
  readonly exemplar: Exemplar | undefined
}

/** What the lines of a histogram are called. */
export interface LineNames {
  readonly bucket: string
  readonly sum: string
  readonly count: string
}

const NONE: Line['bound'] = {}

/** OpenMetrics: names and values of an exemplar's labels have so many characters together at most. */
const MAX_EXEMPLAR = 128

/** One histogram: observing is a search among the buckets, and three additions. */
export class Series {
  readonly labels: Readonly<Record<string, string>>
  readonly #buckets: readonly number[]
  /** By bucket, the last one for what is above all bounds; not cumulative. */
  readonly #counts: number[]
  readonly #exemplars: (Exemplar | undefined)[]
  #sum = 0

  constructor(labels: Readonly<Record<string, string>>, buckets: readonly number[]) {
    this.labels = { ...labels }
    this.#buckets = buckets
    this.#counts = new Array<number>(buckets.length + 1).fill(0)
    this.#exemplars = new Array<Exemplar | undefined>(buckets.length + 1).fill(undefined)
  }

  /** Counts a value. With the id of a trace it becomes the exemplar of its bucket, unless the id is too long. */
  observe(value: number, traceId?: string, wallMs = 0): void {
    const buckets = this.#buckets
    let index = 0
    while (index < buckets.length && value > buckets[index]!) index++
    this.#counts[index]!++
    this.#sum += value
    if (traceId === undefined || 'trace_id'.length + traceId.length > MAX_EXEMPLAR) return
    this.#exemplars[index] = { labelSet: { trace_id: traceId }, value, timestamp: wallMs / 1_000 }
  }

  /** Appends its lines; `bounds` are the labels of the buckets. */
  addTo(lines: Line[], { bucket, sum, count }: LineNames, bounds: readonly Line['bound'][]): void {
    const { labels } = this
    let total = 0
    for (let index = 0; index < bounds.length; index++) {
      total += this.#counts[index]!
      const exemplar = this.#exemplars[index]
      lines.push({ metricName: bucket, bound: bounds[index]!, labels, value: total, exemplar })
    }
    lines.push({ metricName: sum, bound: NONE, labels, value: this.#sum, exemplar: undefined })
    lines.push({ metricName: count, bound: NONE, labels, value: total, exemplar: undefined })
  }

  reset(): void {
    this.#counts.fill(0)
    this.#exemplars.fill(undefined)
    this.#sum = 0
  }
}
