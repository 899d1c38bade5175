/** How many samples are averaged plainly, so that the first does not count for all. */
const WARM_UP = 10

/** An exponential mean over about `window` samples (`ExpAvgMeasurement` of Netflix' concurrency-limits). */
export class LongMean {
  readonly #weight: number
  #samples = 0
  #value = 0

  constructor(window: number) {
    this.#weight = 2 / (window + 1)
  }

  /** 0 before the first sample. */
  get value(): number {
    return this.#value
  }

  /** Adds a sample; returns the new mean. */
  add(sample: number): number {
    if (this.#samples < WARM_UP) this.#value += (sample - this.#value) / ++this.#samples
    else this.#value += (sample - this.#value) * this.#weight
    return this.#value
  }

  scale(factor: number): void {
    this.#value *= factor
  }
}
