import { headOf, numeral, pointer, type Exemplar, type Labels } from './format.ts'

/** One of the lines that each histogram of a metric has. */
export interface Line {
  readonly metricName: string
  /** The bucket's bound, if it is a bucket's. */
  readonly bound: Readonly<Record<string, string | number>>
}

/** OpenMetrics: names and values of an exemplar's labels have so many characters together at most. */
const MAX_EXEMPLAR = 128

/** One histogram: observing is a search among the buckets, and three additions. */
export class Series {
  readonly labels: Labels
  readonly #buckets: readonly number[]
  /** By bucket, the last one for what is above all bounds; not cumulative. */
  readonly #counts: number[]
  readonly #exemplars: (Exemplar | undefined)[]
  #sum = 0
  /** What its lines begin with; made when they are written first. */
  #heads: readonly string[] | undefined

  constructor(labels: Labels, buckets: readonly number[]) {
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

  /** The values of its lines: of each bucket with those below it, the sum, and how many there were. */
  values(): number[] {
    const values: number[] = []
    let total = 0
    for (const count of this.#counts) values.push((total += count))
    values.push(this.#sum, total)
    return values
  }

  /** The latest trace of the bucket of that line, if it is a bucket's. */
  exemplar(line: number): Exemplar | undefined {
    return this.#exemplars[line]
  }

  /** Its lines, all of one moment. */
  written(lines: readonly Line[], withExemplars: boolean): string {
    const heads = (this.#heads ??= lines.map(({ metricName, bound }) =>
      headOf(metricName, { ...bound, ...this.labels }),
    ))
    const values = this.values()
    let text = ''
    for (let line = 0; line < heads.length; line++) {
      const exemplar = withExemplars ? this.#exemplars[line] : undefined
      text += `${heads[line]}${numeral(values[line]!)}${exemplar === undefined ? '' : pointer(exemplar)}\n`
    }
    return text
  }

  reset(): void {
    this.#counts.fill(0)
    this.#exemplars.fill(undefined)
    this.#sum = 0
  }
}
