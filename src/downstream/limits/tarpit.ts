import type { Clock, Millis } from '../../mesh/clock.ts'
import { Recent } from '../../units/recent.ts'
import type { Share } from './quotas.ts'
import type { Tenancy } from '../../access/caller.ts'

/** Number of early retries without a delay: in total, and again for each second. */
const FREE = 10
const FREE_PER_MS = FREE / 1_000

/** The first delay, in milliseconds; each further early retry doubles the delay, up to `longestMs`. */
const FIRST_MS: Millis = 10

const MOST_CLIENTS = 10_000

/** Most delayed answers at a time, of all clients and of each client; further answers are sent at once. */
const MOST_HELD = 500
const MOST_HELD_OF_ONE = 125

/** The largest part of the call quota that delayed answers may use; the rest stays free for other calls. */
const LARGEST_SHARE = 1 / 4

/**
 * How long a client is remembered after its retry time, in milliseconds. A request sent before this time may still be
 * rejected later.
 */
const REMEMBER_MS: Millis = 60_000

interface Visitor {
  /** Time of the first rejection since the client last waited long enough. */
  toldAt: Millis
  /** The client's retry time: the latest of its rejections. */
  backAt: Millis
  /** Number of early retries, reduced by the free retries of each second. */
  tooSoon: number
  /** Time of the last update of `tooSoon`. */
  countedAt: Millis
  held: number
}

/**
 * Delays the rejections of clients that retry before their retry time, because such a client would use up CPU time of
 * the gateway. Each delay is twice the last one, up to the longest delay, and never longer than the rejection's own
 * retry time. The tarpit never delays other answers.
 *
 * Some early retries each second cause no delay. Clients that share a session look like one client that retries early,
 * even if each client obeys its rejections. The same is true for a client with different retry times for two tools.
 */
export class Tarpit {
  readonly #clock: Pick<Clock, 'now' | 'after'>
  readonly #calls: { readonly share: Share }
  readonly #noted: () => void
  readonly #visitors = new Recent<Visitor>(MOST_CLIENTS)
  /** A function for each delayed answer; calling it sends the answer. */
  readonly #held = new Set<() => void>()
  #longestMs: Millis
  #isOpen = true

  /**
   * `longestMs`: the longest delay in milliseconds; 0: no delays. `calls`: the quota for calls, because delayed answers
   * count as calls. Calls `noted` for each delayed answer.
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

  /** Releases all delayed answers, and delays no further answers, because the gateway is closing. */
  close(): void {
    this.#isOpen = false
    for (const letGo of this.#held) letGo()
  }

  /**
   * Returns a promise that resolves when a rejection may be sent; undefined: at once. `cameAt` is the request's arrival
   * on the monotonic clock. `retryAfterMs` is the rejection's retry time, undefined for other answers.
   */
  hold(client: string, cameAt: Millis, retryAfterMs: Millis | undefined): Promise<void> | undefined {
    if (retryAfterMs === undefined || !this.#isOpen) return undefined
    const now = this.#clock.now()
    const visitor = this.#visitorAt(client, cameAt, now)
    const askedMs = Math.min(pauseAfter(visitor.tooSoon), retryAfterMs, this.#longestMs)
    const pauseMs = this.#hasRoom(visitor) ? askedMs : 0
    // Adds the delay: the client learns its retry time only after the delay.
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

  /** Returns the record of a rejected client; counts the request as an early retry if it came before the retry time. */
  #visitorAt(client: string, cameAt: Millis, now: Millis): Visitor {
    const known = this.#visitors.get(client)
    if (known === undefined || cameAt >= known.backAt) {
      this.#visitors.forgetWhile(({ backAt }) => now - backAt >= REMEMBER_MS)
      const visitor = { toldAt: now, backAt: now, tooSoon: 0, countedAt: now, held: 0 }
      this.#visitors.set(client, visitor)
      return visitor
    }
    // Does not count a request that came before the first rejection: the client did not know its retry time.
    if (cameAt <= known.toldAt) return known
    known.tooSoon = Math.max(0, known.tooSoon - (now - known.countedAt) * FREE_PER_MS) + 1
    known.countedAt = now
    return known
  }
}

/** Returns the name for the tarpit of a request's sender without a session: its client and tenant. */
export const senderOf = (client: string, { countsAs }: Tenancy): string => `${client} ${countsAs}`

function pauseAfter(tooSoon: number): Millis {
  return tooSoon <= FREE ? 0 : FIRST_MS * 2 ** Math.min(tooSoon - FREE - 1, 20)
}
