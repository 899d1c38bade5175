import type { Clock, Millis } from '../mesh/clock.ts'

const WINDOW_MS = 1_000

/** Keeps what comes without end from filling the log: so many lines a second, the rest is counted. */
export class LogThrottle {
  readonly #clock: Clock
  readonly #perSecond: number
  #windowEnds: Millis = -Infinity
  #admitted = 0
  #dropped = 0

  constructor(clock: Clock, perSecond: number) {
    this.#clock = clock
    this.#perSecond = perSecond
  }

  /** Calls `log` if one more line may be written, with the number of lines that were dropped before it. */
  admit(log: (dropped: number) => void): void {
    const now = this.#clock.now()
    if (now >= this.#windowEnds) {
      this.#windowEnds = now + WINDOW_MS
      this.#admitted = 0
    }
    if (this.#admitted === this.#perSecond) {
      this.#dropped++
      return
    }
    this.#admitted++
    const dropped = this.#dropped
    this.#dropped = 0
    log(dropped)
  }
}
