import type { Clock, Millis } from '../mesh/clock.ts'
import { Recent } from '../units/recent.ts'

/** Requests in a row that may come too soon before answers are held back: calls in parallel, and retries by a library. */
const FREE = 10

/** The first pause, in milliseconds; each further request that comes too soon doubles it, up to the longest. */
const FIRST_MS: Millis = 10

/** Most clients that are remembered, and most answers that are held at a time: what comes on top is answered at once. */
const MOST_CLIENTS = 10_000
const MOST_HELD = 500

/** How long a client is remembered after the time at which it may come back, in milliseconds: what came before may be rejected after. */
const REMEMBER_MS: Millis = 60_000

interface Visitor {
  /** When it was first told to stay away, since it last did. */
  toldAt: Millis
  /** When it may come back, by what it was told last. */
  backAt: Millis
  /** How often it has come before that, in a row. */
  tooSoon: number
}

/**
 * A tarpit: rejections are cheap, and a client that comes back at once for the next one, again and again, would buy the
 * gateway's time from everybody else with them. Its rejections are held back, each for twice as long as the one before, up to the longest
 * pause and never for longer than it was told to stay away. Answers that are no rejections are never held.
 */
export class Tarpit {
  readonly #clock: Pick<Clock, 'now' | 'after'>
  readonly #held: () => void
  readonly #visitors = new Recent<Visitor>(MOST_CLIENTS)
  #longestMs: Millis
  #holding = 0

  /** `longestMs`: the longest pause in milliseconds; 0: none. `held` is told of each answer that is held. */
  constructor(clock: Pick<Clock, 'now' | 'after'>, longestMs: Millis, held: () => void) {
    this.#clock = clock
    this.#longestMs = longestMs
    this.#held = held
  }

  /** How many clients are remembered. */
  get size(): number {
    return this.#visitors.size
  }

  /** Another longest pause is in force. */
  tune(longestMs: Millis): void {
    this.#longestMs = longestMs
  }

  /**
   * Resolves when a rejection may be sent; undefined: at once. `client` is whoever was rejected, `cameAt` when its request
   * came, on the monotonic clock, and `retryAfterMs` for how long it is told to stay away; undefined for what is no rejection.
   */
  hold(client: string, cameAt: Millis, retryAfterMs: Millis | undefined): Promise<void> | undefined {
    if (retryAfterMs === undefined) return undefined
    const now = this.#clock.now()
    const visitor = this.#visitorAt(client, cameAt, now)
    const askedMs = Math.min(pauseAfter(visitor.tooSoon), retryAfterMs, this.#longestMs)
    const pauseMs = this.#holding < MOST_HELD ? askedMs : 0
    // It is told when the pause is over.
    visitor.backAt = Math.max(visitor.backAt, now + pauseMs + retryAfterMs)
    if (pauseMs <= 0) return undefined
    this.#holding++
    this.#held()
    return new Promise((resolve) => {
      this.#clock.after(pauseMs, () => {
        this.#holding--
        resolve()
      })
    })
  }

  /** Who it is that was rejected once more. */
  #visitorAt(client: string, cameAt: Millis, now: Millis): Visitor {
    const known = this.#visitors.get(client)
    if (known === undefined || cameAt >= known.backAt) {
      this.#visitors.forgetWhile(({ backAt }) => now - backAt >= REMEMBER_MS)
      const visitor = { toldAt: now, backAt: now, tooSoon: 0 }
      this.#visitors.set(client, visitor)
      return visitor
    }
    // What came earlier was on its way before anybody had told it anything.
    if (cameAt > known.toldAt) known.tooSoon++
    return known
  }
}

function pauseAfter(tooSoon: number): Millis {
  return tooSoon <= FREE ? 0 : FIRST_MS * 2 ** Math.min(tooSoon - FREE - 1, 20)
}
