import type { Clock, Millis } from '../../mesh/clock.ts'
import { TokenBucket, type Rate } from '../state/token-bucket.ts'
import { formatRate } from './rate.ts'

/** A rate limit for all calls that share it, or for each of their callers by what tells them apart. */
export interface Limit {
  /** Takes a token: 0. Or tells after how many milliseconds there is one. */
  take(key: string): Millis
  snapshot(): unknown
}

export interface LimitSettings {
  readonly rate: Rate
  readonly burst: number
}

/** How many keys are remembered. One that comes back after being forgotten has its burst again. */
const MOST_KEYS = 10_000

/** One bucket for everybody. */
export class SharedLimit implements Limit {
  readonly #settings: LimitSettings
  readonly #clock: Clock
  readonly #bucket: TokenBucket

  constructor(settings: LimitSettings, clock: Clock) {
    this.#settings = settings
    this.#clock = clock
    this.#bucket = new TokenBucket(settings.rate, settings.burst)
  }

  take(): Millis {
    return this.#bucket.take(this.#clock.now())
  }

  snapshot() {
    const { rate, burst } = this.#settings
    return { rate: formatRate(rate), burst, available: this.#bucket.available(this.#clock.now()) }
  }
}

/** A bucket for each key; past `MOST_KEYS`, the one that has called least recently is forgotten. */
export class KeyedLimit implements Limit {
  readonly #settings: LimitSettings
  readonly #clock: Clock
  readonly #buckets = new Map<string, TokenBucket>()

  constructor(settings: LimitSettings, clock: Clock) {
    this.#settings = settings
    this.#clock = clock
  }

  take(key: string): Millis {
    const { rate, burst } = this.#settings
    let bucket = this.#buckets.get(key)
    if (bucket === undefined) {
      bucket = new TokenBucket(rate, burst)
      if (this.#buckets.size >= MOST_KEYS) this.#forgetOne()
    } else this.#buckets.delete(key)
    this.#buckets.set(key, bucket)
    return bucket.take(this.#clock.now())
  }

  snapshot() {
    const { rate, burst } = this.#settings
    return { rate: formatRate(rate), burst, tenants: this.#buckets.size }
  }

  #forgetOne(): void {
    for (const [key] of this.#buckets) {
      this.#buckets.delete(key)
      return
    }
  }
}
