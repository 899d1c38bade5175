import type { Millis } from '../../mesh/clock.ts'
import { LongMean } from './long-mean.ts'

export interface GradientSettings {
  readonly initial: number
  readonly min: number
  readonly max: number
  readonly smoothing: number
  readonly tolerance: number
  readonly window: number
}

/** What a drop leaves of the limit. */
const AFTER_DROP = 0.9

/**
 * How many calls a server can take at once, learned from its latency: Gradient2 of Netflix' concurrency-limits
 * (github.com/Netflix/concurrency-limits, `Gradient2Limit`). Latency above its long-term mean, times a tolerance,
 * means that calls queue up inside, and the limit shrinks by that ratio; otherwise it grows by its square root, the
 * queue that is allowed for. Drops shrink it as in the same library's `AIMDLimit`.
 */
export class Gradient {
  readonly #settings: GradientSettings
  readonly #long: LongMean
  #limit: number
  #droppedAt: Millis = -Infinity

  constructor(settings: GradientSettings) {
    this.#settings = settings
    this.#long = new LongMean(settings.window)
    this.#limit = settings.initial
  }

  /** Calls at once, a whole number within `min` … `max`. */
  get limit(): number {
    return Math.floor(this.#limit)
  }

  /** The long-term mean of the latency, in milliseconds; 0 before the first sample. */
  get latencyMs(): Millis {
    return this.#long.value
  }

  /** A call came back after `latencyMs`; `inFlight`: how many there were when it started, itself included. */
  sample(latencyMs: Millis, inFlight: number): void {
    const { smoothing, tolerance } = this.#settings
    // The clock's grain: a latency of 0 would make the ratio meaningless.
    const shortMs = Math.max(latencyMs, 0.001)
    const longMs = this.#long.add(shortMs)
    // After a long slow spell the mean would take long to come down, and let too much through meanwhile.
    if (longMs / shortMs > 2) this.#long.scale(0.95)
    // Who uses half of the limit only learns nothing about the other half.
    if (inFlight <= this.#limit / 2) return
    const gradient = Math.max(0.5, Math.min(1, (tolerance * longMs) / shortMs))
    const wanted = this.#limit * gradient + Math.sqrt(this.#limit)
    this.#set(this.#limit * (1 - smoothing) + wanted * smoothing)
  }

  /** A call that started at `startedAt` was dropped. Those that were under way together count as one drop. */
  drop(startedAt: Millis, now: Millis): void {
    if (startedAt < this.#droppedAt) return
    this.#droppedAt = now
    this.#set(this.#limit * AFTER_DROP)
  }

  #set(limit: number): void {
    const { min, max } = this.#settings
    this.#limit = Math.max(min, Math.min(max, limit))
  }
}
