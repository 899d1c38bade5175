import type { Millis } from '../../mesh/clock.ts'

export interface WindowSettings {
  readonly calls: number
  readonly per: Millis
  readonly minTime: Millis
}

/**
 * Never more than `calls` in any span of `per` milliseconds, and `minTime` between two of them: whatever windows
 * the other side counts in, the quota is kept. The times of the last `calls` calls in a ring, 8 bytes each.
 */
export class SlidingWindow {
  readonly #settings: WindowSettings
  readonly #times: Float64Array
  /** Where the oldest time stands. */
  #oldest = 0
  #last: Millis = -Infinity

  constructor(settings: WindowSettings) {
    this.#settings = settings
    this.#times = new Float64Array(settings.calls).fill(-Infinity)
  }

  /** Lets one call through: 0. Or tells how many milliseconds have to pass before that. */
  take(now: Millis): Millis {
    const waitMs = this.wait(now, 0)
    if (waitMs > 0) return waitMs
    this.#times[this.#oldest] = now
    this.#oldest = (this.#oldest + 1) % this.#times.length
    this.#last = now
    return 0
  }

  /** The least that a call has to wait with `ahead` others before it, in milliseconds. */
  wait(now: Millis, ahead: number): Millis {
    const { calls, per, minTime } = this.#settings
    const rounds = Math.floor(ahead / calls)
    const before = this.#times[(this.#oldest + ahead) % calls]!
    // Those ahead that have no wait by the quota still go now at the earliest, which a further round counts from.
    const byQuota = rounds === 0 ? before + per - now : Math.max(before + per - now, 0) + rounds * per
    const bySpacing = Math.max(this.#last + minTime - now, 0) + ahead * minTime
    return Math.max(0, byQuota, bySpacing)
  }

  /** How many calls the quota has left now. */
  left(now: Millis): number {
    const { calls, per } = this.#settings
    let left = 0
    while (left < calls && this.#times[(this.#oldest + left) % calls]! + per <= now) left++
    return left
  }
}
