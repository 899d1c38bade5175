import type { Clock, Millis } from '../mesh/clock.ts'
import { formatDuration } from '../units/duration.ts'
import { type Refusal, refusal } from './refusal.ts'

/** Tolerance in milliseconds. Starts and approvals wait while the clock is further behind the latest time. */
const CLOCK_BACK_MS: Millis = 5_000

/** Wall-clock time that never goes backwards. */
export class LatestTime {
  readonly #clock: Clock
  readonly #recorded: () => number
  /** Wall-clock time of the reference instant, in milliseconds since the epoch. */
  #wallAt: number
  /** Monotonic time of the reference instant. */
  #monotonicAt: Millis

  /** `recorded` returns the latest recorded time, in milliseconds since the epoch; 0 without a record. */
  constructor(clock: Clock, recorded: () => number) {
    this.#clock = clock
    this.#recorded = recorded
    this.#wallAt = clock.wall()
    this.#monotonicAt = clock.now()
  }

  /** Returns the time in milliseconds since the epoch. */
  now(): number {
    return Math.max(this.#clock.wall(), this.#seen())
  }

  /** Returns a refusal while the clock is more than 5 seconds behind the latest time; undefined otherwise. */
  clockBack(): Refusal | undefined {
    const behind = this.#seen() - this.#clock.wall()
    // After a forward correction of the clock, the corrected time is the new reference instant.
    if (behind < 0) {
      this.#wallAt = this.#clock.wall()
      this.#monotonicAt = this.#clock.now()
    }
    if (behind <= CLOCK_BACK_MS) return undefined
    return refusal(
      'clock_back',
      `the clock of the gateway is ${formatDuration(Math.round(behind / 1_000) * 1_000)} behind a time seen before`,
      { repeat: 'later', retryAfterMs: Math.ceil(behind) },
    )
  }

  /** Returns the later of two times: the latest recorded time, and the reference instant plus the elapsed time. */
  #seen(): number {
    return Math.max(this.#recorded(), this.#wallAt + (this.#clock.now() - this.#monotonicAt))
  }
}
