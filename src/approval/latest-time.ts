import type { Clock, Millis } from '../mesh/clock.ts'
import { formatDuration } from '../units/duration.ts'
import { type Refusal, refusal } from './refusal.ts'

/** A clock this much behind the latest time seen makes starts and approvals wait, in milliseconds. */
const CLOCK_BACK_MS: Millis = 5_000

/** The wall time, never earlier than a time seen before: a clock set back gives no time back. */
export class LatestTime {
  readonly #clock: Clock
  readonly #recorded: () => number
  /** Wall and monotonic time of one instant. */
  #wallAt: number
  #monotonicAt: Millis

  /** `recorded` returns the latest time on record, in milliseconds since the epoch; 0 without a record. */
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

  /** Returns a refusal while the clock is more than 5 seconds behind; undefined otherwise. */
  clockBack(): Refusal | undefined {
    const behind = this.#seen() - this.#clock.wall()
    // After a correction forwards, later looks compare with the corrected time.
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

  /** Returns the latest time known to have passed: by the monotonic clock since the start, and by the record. */
  #seen(): number {
    return Math.max(this.#recorded(), this.#wallAt + (this.#clock.now() - this.#monotonicAt))
  }
}
