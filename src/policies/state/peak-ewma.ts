import type { Millis } from '../../mesh/clock.ts'

/**
 * A moving average that believes bad news at once and good news slowly: a value above it becomes it, one below it
 * draws it down with the time constant. After Finagle's peak EWMA load metric.
 */
export class PeakEwma {
  readonly #tauMs: Millis
  #value: number | undefined
  #at: Millis = 0

  /** `tauMs`: after this long without a new value, in milliseconds, 37 % of the average is left. */
  constructor(tauMs: Millis) {
    this.#tauMs = tauMs
  }

  /** The average as it was at the last value, not faded; undefined before the first. */
  get last(): number | undefined {
    return this.#value
  }

  /** The average now: the longer there was no value, the nearer to 0. 0 before the first. */
  faded(now: Millis): number {
    return this.#value === undefined ? 0 : this.#value * Math.exp((this.#at - now) / this.#tauMs)
  }

  /** Takes a value in. */
  add(value: number, now: Millis): void {
    const kept = Math.exp((this.#at - now) / this.#tauMs)
    this.#value =
      this.#value === undefined || value >= this.#value ? value : this.#value * kept + value * (1 - kept)
    this.#at = now
  }

  /** Takes in that a value was at least this: it can only raise the average. */
  addAtLeast(value: number, now: Millis): void {
    if (value > (this.#value ?? 0)) this.add(value, now)
  }
}
