import { z } from 'zod'
import type { Clock, Millis } from '../../mesh/clock.ts'
import { quantities } from '../../units/quantity.ts'
import { Recent } from '../../units/recent.ts'

/** A rate limit shared by all calls, or kept separately for each caller key. */
export interface Limit {
  /** Takes a token and returns 0, or returns the milliseconds until the next token. */
  take(key: string): Millis
  snapshot(): object
}

export interface LimitSettings {
  readonly rate: Rate
  readonly burst: number
}

/** Most keys kept. A key forgotten earlier starts again with a full burst. */
const MOST_KEYS = 10_000

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

/** How long a bucket must have been full before its removal, in milliseconds. */
const IDLE_MS: Millis = 60_000

/**
 * A bucket per key. Removes buckets that have been full for a minute, because a full bucket equals a new one; past
 * `MOST_KEYS`, removes the least recently used bucket.
 */
export class KeyedLimit implements Limit {
  readonly #settings: LimitSettings
  readonly #clock: Clock
  readonly #buckets = new Recent<TokenBucket>(MOST_KEYS)

  constructor(settings: LimitSettings, clock: Clock) {
    this.#settings = settings
    this.#clock = clock
  }

  take(key: string): Millis {
    const { rate, burst } = this.#settings
    const now = this.#clock.now()
    let bucket = this.#buckets.get(key)
    if (bucket === undefined) {
      this.#buckets.forgetWhile((other) => other.isFull(now - IDLE_MS))
      bucket = new TokenBucket(rate, burst)
      this.#buckets.set(key, bucket)
    }
    return bucket.take(now)
  }

  snapshot() {
    const { rate, burst } = this.#settings
    return { rate: formatRate(rate), burst, tenants: this.#buckets.size }
  }
}

const units: Readonly<Record<string, number>> = { s: 1_000, m: 60_000, h: 3_600_000, d: 86_400_000 }

/** Most calls per unit of time: more are no limit. */
const MOST_CALLS = 1_000_000

const pattern = /^(\d+(?:\.\d+)?)\/([smhd])$/

const expected = `expected a rate above 0 and up to ${MOST_CALLS} calls per unit, such as 100/s, 60/m or 1000/h`

/** Schema of a rate: `100/s`, `60/m`, `1000/h`, `5000/d`, or a bare number of calls per second. */
export function rate() {
  return z
    .union(
      [z.number().positive(expected).max(MOST_CALLS, expected), z.string().regex(pattern, expected)],
      expected,
    )
    .transform((value, context): Rate => {
      const [, count, unit = 's'] = typeof value === 'number' ? [value, value] : (pattern.exec(value) ?? [])
      const calls = Number(count)
      if (calls > 0 && calls <= MOST_CALLS) return { calls, perMs: units[unit] ?? 1_000 }
      context.addIssue({ code: 'custom', message: expected })
      return z.NEVER
    })
    .register(quantities, { type: 'rate, such as `10/s` or `600/m`' })
}

export const perSecond = ({ calls, perMs }: Rate): number => (calls * 1_000) / perMs

/** Formats a rate as in a config: `60/m`. */
export function formatRate({ calls, perMs }: Rate): string {
  const unit = Object.keys(units).find((name) => units[name] === perMs) ?? 's'
  return `${calls}/${unit}`
}

/** `calls` in every `perMs` milliseconds, as a steady flow. */
export interface Rate {
  readonly calls: number
  readonly perMs: Millis
}

/** Waits below this are rounding errors, in milliseconds. */
const NOTHING_MS = 1e-6

/**
 * A token bucket with `rate` as fill rate and `burst` as capacity, full at first. Stores only the time when the bucket
 * would be full again: the virtual scheduling form of the generic cell rate algorithm (ITU-T I.371). This form needs no
 * refill and gives the exact wait for the next token.
 */
export class TokenBucket {
  readonly #perTokenMs: Millis
  readonly #burst: number
  #fullAt: Millis = -Infinity

  constructor({ calls, perMs }: Rate, burst: number) {
    this.#perTokenMs = perMs / calls
    this.#burst = burst
  }

  /** Takes a token and returns 0. Without a token, takes nothing and returns the milliseconds until the next token. */
  take(now: Millis): Millis {
    const fullAt = Math.max(this.#fullAt, now)
    const waitMs = fullAt - now - (this.#burst - 1) * this.#perTokenMs
    if (waitMs > NOTHING_MS) return waitMs
    this.#fullAt = fullAt + this.#perTokenMs
    return 0
  }

  /** Whether the bucket is full at `now`; for an earlier `now`, whether the bucket has been full ever since. */
  isFull(now: Millis): boolean {
    return now >= this.#fullAt
  }

  available(now: Millis): number {
    const lacking = Math.max(0, this.#fullAt - now - NOTHING_MS) / this.#perTokenMs
    return Math.max(0, Math.floor(this.#burst - lacking))
  }
}
