import type { HrTime } from '@opentelemetry/api'
import type { Clock, Millis } from '../../mesh/clock.ts'

/** How far the two clocks may run apart before that is taken for a change of the wall clock, in milliseconds. */
const DRIFT_MS = 2

/**
 * Turns points on the monotonic clock into wall time. The wall clock ticks in whole milliseconds: the difference is
 * taken once and kept, so that spans keep their order below that.
 */
export class Epoch {
  readonly #clock: Clock
  #offset: Millis

  constructor(clock: Clock) {
    this.#clock = clock
    this.#offset = clock.wall() - clock.now()
  }

  /** Takes note of a wall clock that was set. */
  refresh(): void {
    const offset = this.#clock.wall() - this.#clock.now()
    if (Math.abs(offset - this.#offset) > DRIFT_MS) this.#offset = offset
  }

  at(ms: Millis): HrTime {
    const wall = this.#offset + ms
    const seconds = Math.floor(wall / 1_000)
    return [seconds, Math.floor((wall - seconds * 1_000) * 1e6)]
  }
}
