import type { Clock, Millis } from '../../mesh/clock.ts'
import { TokenBucket, type Rate } from '../state/token-bucket.ts'
import { formatRate } from './rate.ts'

/** A rate limit for all calls that share it, or for each of their tenants. */
export interface Limit {
  /** Takes a token: 0. Or tells after how many milliseconds there is one. */
  take(tenant: string): Millis
  snapshot(): unknown
}

export interface LimitSettings {
  readonly rate: Rate
  readonly burst: number
}

/** How many tenants are remembered. One that comes back after being forgotten has its burst again. */
const MOST_TENANTS = 10_000

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

/** A bucket for each tenant; past `MOST_TENANTS`, the one that has called least recently is forgotten. */
export class TenantLimit implements Limit {
  readonly #settings: LimitSettings
  readonly #clock: Clock
  readonly #buckets = new Map<string, TokenBucket>()

  constructor(settings: LimitSettings, clock: Clock) {
    this.#settings = settings
    this.#clock = clock
  }

  take(tenant: string): Millis {
    const { rate, burst } = this.#settings
    let bucket = this.#buckets.get(tenant)
    if (bucket === undefined) {
      bucket = new TokenBucket(rate, burst)
      if (this.#buckets.size >= MOST_TENANTS) this.#forgetOne()
    } else this.#buckets.delete(tenant)
    this.#buckets.set(tenant, bucket)
    return bucket.take(this.#clock.now())
  }

  snapshot() {
    const { rate, burst } = this.#settings
    return { rate: formatRate(rate), burst, tenants: this.#buckets.size }
  }

  #forgetOne(): void {
    for (const [tenant] of this.#buckets) {
      this.#buckets.delete(tenant)
      return
    }
  }
}
