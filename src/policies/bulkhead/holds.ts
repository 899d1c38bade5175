import type { Millis } from '../../mesh/clock.ts'

/** Weight of the newest call in the mean time for which a slot is held. */
const NEWEST = 0.1

/** For how long slots are held: by calls that gave theirs back, and so far by those that have not. */
export class Holds {
  #running = 0
  /** Of the starts of all running calls: their mean age follows from it, however many there are. */
  #startSum: Millis = 0
  #meanMs: Millis | undefined

  /** How many slots are held. */
  get running(): number {
    return this.#running
  }

  started(now: Millis): void {
    this.#running++
    this.#startSum += now
  }

  ended(startedAt: Millis, now: Millis): void {
    const heldMs = now - startedAt
    this.#meanMs = this.#meanMs === undefined ? heldMs : this.#meanMs + (heldMs - this.#meanMs) * NEWEST
    // Not what is left of the sum: errors of rounding would add up.
    this.#startSum = --this.#running === 0 ? 0 : this.#startSum - startedAt
  }

  /**
   * For how long a slot is held, in milliseconds, as far as anybody knows: the mean of calls that have ended, or that of
   * the ages of those that have not, if these are older already. Calls that hang do not end, so the former alone
   * would promise what the tool was like before.
   */
  estimateMs(now: Millis): Millis {
    const age = this.#running === 0 ? 0 : now - this.#startSum / this.#running
    return Math.max(this.#meanMs ?? 0, age)
  }
}
