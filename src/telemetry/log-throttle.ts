import type { Clock, Millis } from '../mesh/clock.ts'

/** Limits log lines: logs a number of lines in each window of time and counts the rest. */
export class LogThrottle {
  readonly #clock: Clock
  readonly #lines: number
  readonly #windowMs: Millis
  #windowEnds: Millis = -Infinity
  #admitted = 0
  #dropped = 0

  /** `windowMs`: 1,000 by default. */
  constructor(clock: Clock, lines: number, windowMs: Millis = 1_000) {
    this.#clock = clock
    this.#lines = lines
    this.#windowMs = windowMs
  }

  /** Calls `log` with the number of lines dropped before, if another line is allowed; else counts a dropped line. */
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
