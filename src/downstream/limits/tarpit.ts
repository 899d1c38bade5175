import type { Clock, Millis } from '../../mesh/clock.ts'
import { Recent } from '../../units/recent.ts'
import type { Share } from './quotas.ts'
import type { Tenancy } from '../../access/caller.ts'

/** Early requests allowed before answers are held back, and further free early requests each second. */
const FREE = 10
const FREE_PER_MS = FREE / 1_000

/** The first pause, in milliseconds; each further early request doubles the pause, up to the longest. */
const FIRST_MS: Millis = 10

const MOST_CLIENTS = 10_000

/** Most answers held at a time, of all clients and of each client; further answers go out at once. */
const MOST_HELD = 500
const MOST_HELD_OF_ONE = 125

/** The largest share of an address's calls that may be held; the rest stays free for other calls. */
const LARGEST_SHARE = 1 / 4

/** How long a client is remembered after its return time, in milliseconds: earlier requests may be rejected later. */
const REMEMBER_MS: Millis = 60_000

interface Visitor {
  /** When the client was first told to stay away since its last accepted return. */
  toldAt: Millis
  /** The latest time at which the client may come back. */
  backAt: Millis
  /** Number of early returns, less the free ones. */
  tooSoon: number
  /** When `tooSoon` was last updated. */
  countedAt: Millis
  held: number
}

/**
 * A tarpit. Rejections are cheap, and a client that returns at once for the next rejection would use up gateway time.
 * Its rejections are held back, each twice as long as the last, up to the longest pause and never longer than the
 * client was told to stay away. Other answers are never held.
 *
 * Clients that share a session and each obey their rejections look like a single early client; so does a client told to
 * avoid two tools for different times. So some early returns each second are free.
 */
export class Tarpit {
  readonly #clock: Pick<Clock, 'now' | 'after'>
  readonly #calls: { readonly share: Share }
  readonly #noted: () => void
  readonly #visitors = new Recent<Visitor>(MOST_CLIENTS)
  /** A function for each held answer, which releases the answer. */
  readonly #held = new Set<() => void>()
  #longestMs: Millis
  #isOpen = true

  /**
   * `longestMs`: the longest pause in milliseconds; 0: none. `calls`: the quota for calls; held answers count as calls.
   * Calls `noted` for each held answer.
   */
  constructor(
    clock: Pick<Clock, 'now' | 'after'>,
    longestMs: Millis,
    calls: { readonly share: Share },
    noted: () => void,
  ) {
    this.#clock = clock
    this.#longestMs = longestMs
    this.#calls = calls
    this.#noted = noted
  }

  /** Number of remembered clients. */
  get size(): number {
    return this.#visitors.size
  }

  tune(longestMs: Millis): void {
    this.#longestMs = longestMs
  }

  /** Releases all held answers and holds no more: the gateway is closing. */
  close(): void {
    this.#isOpen = false
    for (const letGo of this.#held) letGo()
  }

  /**
   * Resolves when a rejection may be sent; undefined: at once. `client` is the rejected client, `cameAt` the arrival
   * time on the monotonic clock, and `retryAfterMs` how long to stay away; undefined for other answers.
   */
  hold(client: string, cameAt: Millis, retryAfterMs: Millis | undefined): Promise<void> | undefined {
    if (retryAfterMs === undefined || !this.#isOpen) return undefined
    const now = this.#clock.now()
    const visitor = this.#visitorAt(client, cameAt, now)
    const askedMs = Math.min(pauseAfter(visitor.tooSoon), retryAfterMs, this.#longestMs)
    const pauseMs = this.#hasRoom(visitor) ? askedMs : 0
    // The client learns its retry time when the pause is over.
    visitor.backAt = Math.max(visitor.backAt, now + pauseMs + retryAfterMs)
    return pauseMs > 0 ? this.#pause(visitor, pauseMs) : undefined
  }

  #pause(visitor: Visitor, pauseMs: Millis): Promise<void> {
    this.#noted()
    return new Promise((resolve) => {
      const letGo = () => {
        cancel()
        this.#held.delete(letGo)
        visitor.held--
        resolve()
      }
      const cancel = this.#clock.after(pauseMs, letGo)
      this.#held.add(letGo)
      visitor.held++
    })
  }

  #hasRoom(visitor: Visitor): boolean {
    const { max, perClient } = this.#calls.share
    const most = Math.min(MOST_HELD, Math.floor(Math.min(max, perClient) * LARGEST_SHARE))
    return this.#held.size < most && visitor.held < MOST_HELD_OF_ONE
  }

  /** Returns the client that was rejected once more, and counts a return that came too soon. */
  #visitorAt(client: string, cameAt: Millis, now: Millis): Visitor {
    const known = this.#visitors.get(client)
    if (known === undefined || cameAt >= known.backAt) {
      this.#visitors.forgetWhile(({ backAt }) => now - backAt >= REMEMBER_MS)
      const visitor = { toldAt: now, backAt: now, tooSoon: 0, countedAt: now, held: 0 }
      this.#visitors.set(client, visitor)
      return visitor
    }
    // An earlier request was sent before the client knew of the rejection.
    if (cameAt <= known.toldAt) return known
    known.tooSoon = Math.max(0, known.tooSoon - (now - known.countedAt) * FREE_PER_MS) + 1
    known.countedAt = now
    return known
  }
}

/** Names the sender of a request where no sessions tell clients apart. */
export const senderOf = (client: string, { countsAs }: Tenancy): string => `${client} ${countsAs}`

function pauseAfter(tooSoon: number): Millis {
  return tooSoon <= FREE ? 0 : FIRST_MS * 2 ** Math.min(tooSoon - FREE - 1, 20)
}
