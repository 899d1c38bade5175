import type { Clock, Millis } from '../mesh/clock.ts'
import type { Era } from '../protocol/modern.ts'
import type { Eras, KnownEra } from './upstream.ts'

/** How long an answer is believed, in milliseconds. */
const TTL_MS: Millis = 600_000

/**
 * How long one is believed that rests on a silence, or that contradicts one still believed, in milliseconds: a server in
 * trouble may look like one that does not speak an era.
 */
const DOUBTFUL_MS: Millis = 60_000

interface Entry {
  readonly known: KnownEra
  /** The end of its time, on the monotonic clock. */
  until: Millis
}

export function otherEra(era: Era): Era {
  return era === 'modern' ? 'legacy' : 'modern'
}

/** What is known of the eras that one endpoint speaks: each of them with a time and a cause of its own. */
export class KnownEras {
  readonly #clock: Clock
  readonly #isPinned: boolean
  readonly #entries = new Map<Era, Entry>()
  /** Eras whose version the server has refused since that was found out. */
  readonly #refused = new Set<Era>()

  /** `auto` finds out; an era that the config names is the only one that is spoken, and is never doubted. */
  constructor(era: Era | 'auto', clock: Clock) {
    this.#clock = clock
    this.#isPinned = era !== 'auto'
    if (era !== 'auto')
      this.#entries.set(era, {
        known: { speaks: true, decidedBy: 'config', at: clock.wall() },
        until: Infinity,
      })
  }

  /** What is known, that included whose time is over. */
  get all(): Eras {
    return Object.fromEntries([...this.#entries].map(([era, { known }]) => [era, known]))
  }

  /** Whether the server speaks an era; undefined while nobody knows, or not any more. */
  speaks(era: Era): boolean | undefined {
    const entry = this.#entries.get(era)
    if (entry === undefined || this.#clock.now() >= entry.until) return undefined
    return entry.known.speaks
  }

  note(era: Era, speaks: boolean, decidedBy: 'probe' | 'silence' = 'probe'): void {
    if (this.#isPinned) return
    const isDoubtful = decidedBy === 'silence' || (!speaks && this.speaks(era) === true)
    const cause = this.#refused.delete(era) && !speaks ? 'version_error' : decidedBy
    const entry = this.#entries.get(era)
    const until = this.#clock.now() + (isDoubtful ? DOUBTFUL_MS : TTL_MS)
    // Each opening confirms it; what is told is since when it is so.
    if (entry?.known.speaks === speaks && entry.known.decidedBy === cause) entry.until = until
    else this.#entries.set(era, { known: { speaks, decidedBy: cause, at: this.#clock.wall() }, until })
  }

  /** The server has refused a version of this era: it is asked anew. False when that is not to be asked. */
  doubt(era: Era): boolean {
    const entry = this.#entries.get(era)
    if (this.#isPinned || entry?.known.speaks !== true) return false
    entry.until = 0
    this.#refused.add(era)
    return true
  }
}
