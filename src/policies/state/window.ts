import type { Millis } from '../../mesh/clock.ts'

/** What a window has seen; the same object for as long as the window lives. */
export interface Totals {
  readonly good: number
  readonly bad: number
}

const BUCKETS = 10

/**
 * Counts good and bad samples of the last `windowMs` in a ring of ten buckets, the oldest of which is emptied as
 * time moves on, so that a window covers 90 to 100 % of its length. An average that decays would
 * let a tight burst of successes hide an outage. Takes 0.3 KB, and about 20 ns a sample.
 */
export class RingWindow implements Totals {
  readonly #bucketMs: Millis
  /** Good at even places, bad at odd ones. A typed array of this size lies off the heap, and takes more room. */
  readonly #counts = new Array<number>(2 * BUCKETS).fill(0)
  /** Number of the newest bucket since the clock began. */
  #newest = 0
  good = 0
  bad = 0

  /** `windowMs`: length of the window, in milliseconds, more than 0. */
  constructor(windowMs: Millis) {
    this.#bucketMs = windowMs / BUCKETS
  }

  add(isBad: boolean, now: Millis): void {
    this.#advance(now)
    const at = 2 * (this.#newest % BUCKETS)
    if (isBad) {
      this.#counts[at + 1]!++
      this.bad++
    } else {
      this.#counts[at]!++
      this.good++
    }
  }

  /** What the window holds now. */
  totals(now: Millis): Totals {
    this.#advance(now)
    return this
  }

  reset(): void {
    this.#counts.fill(0)
    this.good = 0
    this.bad = 0
  }

  #advance(now: Millis): void {
    const newest = Math.floor(now / this.#bucketMs)
    if (newest - this.#newest >= BUCKETS) this.reset()
    else for (let number = this.#newest + 1; number <= newest; number++) this.#empty(number % BUCKETS)
    this.#newest = newest
  }

  #empty(bucket: number): void {
    const at = 2 * bucket
    this.good -= this.#counts[at]!
    this.bad -= this.#counts[at + 1]!
    this.#counts[at] = 0
    this.#counts[at + 1] = 0
  }
}
