import { z } from 'zod'
import type { Clock, Millis } from '../../mesh/clock.ts'
import { quantities } from '../../units/quantity.ts'
import { Recent } from '../../units/recent.ts'

/** A rate limit for all calls that share it, or for each of their callers by what tells them apart. */
export interface Limit {
  /** Takes a token: 0. Or tells after how many milliseconds there is one. */
  take(key: string): Millis
  snapshot(): object
}

export interface LimitSettings {
  readonly rate: Rate
  readonly burst: number
}

/** Most keys that are remembered. One that comes back after being forgotten has its burst again. */
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

/** So long a bucket has to be full before it is forgotten, in milliseconds: one is full again soon after each call of a slow caller. */
const IDLE_MS: Millis = 60_000

/**
 * A bucket for each key. Those that have been full for a minute are forgotten when another key comes, for a new one would be the
 * same; past `MOST_KEYS`, the one that has called least recently.
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

/** A rate in a config: `100/s`, `60/m`, `1000/h`, `5000/d`, or a bare number of calls per second. */
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

/** How many calls a second that is. */
export const perSecond = ({ calls, perMs }: Rate): number => (calls * 1_000) / perMs

/** Writes a rate as a config does: `60/m`. */
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
 * A token bucket that fills at `rate` and holds `burst` tokens, full at first. It is kept as one number, the time
 * at which it would be full again: the virtual scheduling form of the generic cell rate algorithm (ITU-T I.371),
 * which needs no refill and tells the wait for the next token exactly.
 */
export class TokenBucket {
  readonly #perTokenMs: Millis
  readonly #burst: number
  #fullAt: Millis = -Infinity

  constructor({ calls, perMs }: Rate, burst: number) {
    this.#perTokenMs = perMs / calls
    this.#burst = burst
  }

  /** Takes a token: 0. Or, when there is none, takes nothing and tells after how many milliseconds there is one. */
  take(now: Millis): Millis {
    const fullAt = Math.max(this.#fullAt, now)
    const waitMs = fullAt - now - (this.#burst - 1) * this.#perTokenMs
    if (waitMs > NOTHING_MS) return waitMs
    this.#fullAt = fullAt + this.#perTokenMs
    return 0
  }

  /** Whether it is as a new one is; of a time before `now`, whether it has been ever since. */
  isFull(now: Millis): boolean {
    return now >= this.#fullAt
  }

  /** How many tokens are there now, as a whole number. */
  available(now: Millis): number {
    const lacking = Math.max(0, this.#fullAt - now - NOTHING_MS) / this.#perTokenMs
    return Math.max(0, Math.floor(this.#burst - lacking))
  }
}
