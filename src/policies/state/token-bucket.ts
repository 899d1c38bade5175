import type { Millis } from '../../mesh/clock.ts'

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
