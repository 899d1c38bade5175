import type { Clock, Millis } from '../mesh/clock.ts'

/** Keeps what comes without end from filling the log: so many lines in each window of time, the rest is counted. */
export class LogThrottle {
  readonly #clock: Clock
  readonly #lines: number
  readonly #windowMs: Millis
  #windowEnds: Millis = -Infinity
  #admitted = 0
  #dropped = 0

  /** `windowMs`: a second, unless given. */
  constructor(clock: Clock, lines: number, windowMs: Millis = 1_000) {
    this.#clock = clock
    this.#lines = lines
    this.#windowMs = windowMs
  }

  /** Calls `log` if one more line may be written, with the number of lines that were dropped before it. */
  admit(log: (dropped: number) => void): void {
    const now = this.#clock.now()
    if (now >= this.#windowEnds) {
      this.#windowEnds = now + this.#windowMs
      this.#admitted = 0
    }
    if (this.#admitted === this.#lines) {
      this.#dropped++
      return
    }
    this.#admitted++
    const dropped = this.#dropped
    this.#dropped = 0
    log(dropped)
  }
}
