import type { Clock, Millis } from '../../mesh/clock.ts'
import { Recent } from '../../units/recent.ts'
import type { Share } from './quotas.ts'
import type { Tenancy } from '../../access/caller.ts'

/** Requests that may come too soon before answers are held back, and how many more of them in each second. */
const FREE = 10
const FREE_PER_MS = FREE / 1_000

/** The first pause, in milliseconds; each further request that comes too soon doubles it, up to the longest. */
const FIRST_MS: Millis = 10

/** Most clients that are remembered. */
const MOST_CLIENTS = 10_000

/** Most answers that are held at a time, of all clients and of one: what comes on top is answered at once. */
const MOST_HELD = 500
const MOST_HELD_OF_ONE = 125

/** The largest share of the calls of one address that may be held: the rest is room for other calls from there. */
const LARGEST_SHARE = 1 / 4

/** How long a client is remembered after the time at which it may come back, in milliseconds: what came before may be rejected after. */
const REMEMBER_MS: Millis = 60_000

interface Visitor {
  /** When it was first told to stay away, since it last did. */
  toldAt: Millis
  /** When it may come back, by all that it was told. */
  backAt: Millis
  /** How often it has come before that, less what is free. */
  tooSoon: number
  /** When `tooSoon` was worked out. */
  countedAt: Millis
  /** How many answers to it are held. */
  held: number
}

/**
 * A tarpit: rejections are cheap, and a client that comes back at once for the next one, again and again, would buy the
 * gateway's time from everybody else with them. Its rejections are held back, each for twice as long as the one before, up to the longest
 * pause and never for longer than it was told to stay away. Answers that are no rejections are never held.
 *
 * Several who share a session, and each heed what they were told, look like one who comes back too soon; so does one who was
 * told to stay away from one tool for long and from another for a moment. This is why some are free in each second.
 */
export class Tarpit {
  readonly #clock: Pick<Clock, 'now' | 'after'>
  readonly #calls: { readonly share: Share }
  readonly #noted: () => void
  readonly #visitors = new Recent<Visitor>(MOST_CLIENTS)
  /** One function for each held answer, which lets the answer go. */
  readonly #held = new Set<() => void>()
  #longestMs: Millis
  #isOpen = true

  /**
   * `longestMs`: the longest pause in milliseconds; 0: none. `calls`: how many may be under way, which those that are held
   * are. `noted` is told of each answer that is held.
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

  /** How many clients are remembered. */
  get size(): number {
    return this.#visitors.size
  }

  /** Another longest pause is in force. */
  tune(longestMs: Millis): void {
    this.#longestMs = longestMs
  }

  /** Lets all held answers go, and holds no more: the gateway ends. */
  close(): void {
    this.#isOpen = false
    for (const letGo of this.#held) letGo()
  }

  /**
   * Resolves when a rejection may be sent; undefined: at once. `client` is whoever was rejected, `cameAt` when its request
   * came, on the monotonic clock, and `retryAfterMs` for how long it is told to stay away; undefined for what is no rejection.
   */
  hold(client: string, cameAt: Millis, retryAfterMs: Millis | undefined): Promise<void> | undefined {
    if (retryAfterMs === undefined || !this.#isOpen) return undefined
    const now = this.#clock.now()
    const visitor = this.#visitorAt(client, cameAt, now)
    const askedMs = Math.min(pauseAfter(visitor.tooSoon), retryAfterMs, this.#longestMs)
    const pauseMs = this.#hasRoom(visitor) ? askedMs : 0
    // It is told when the pause is over.
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
    // An earlier request was on its way before the client was told anything.
    if (cameAt <= known.toldAt) return known
    known.tooSoon = Math.max(0, known.tooSoon - (now - known.countedAt) * FREE_PER_MS) + 1
    known.countedAt = now
    return known
  }
}

/** Names the sender of a request, where there are no sessions that would tell clients apart. */
export const senderOf = (client: string, { countsAs }: Tenancy): string => `${client} ${countsAs}`

function pauseAfter(tooSoon: number): Millis {
  return tooSoon <= FREE ? 0 : FIRST_MS * 2 ** Math.min(tooSoon - FREE - 1, 20)
}
