import type { Clock, Millis } from '../mesh/clock.ts'
import type { Era } from '../protocol/modern.ts'
import type { Eras, EraVerdict } from './upstream.ts'

/** How long a verdict is believed, in milliseconds. */
const TTL_MS: Millis = 600_000

/**
 * How long one is believed that rests on a silence, or that contradicts one still believed, in milliseconds: a server in
 * trouble may look like one that does not speak an era.
 */
const DOUBTFUL_MS: Millis = 60_000

interface Known {
  readonly verdict: EraVerdict
  /** The end of its time, on the monotonic clock. */
  until: Millis
}

export function otherEra(era: Era): Era {
  return era === 'modern' ? 'legacy' : 'modern'
}

/** What is known of the eras that one endpoint speaks: each has a verdict, a time and a cause of its own. */
export class EraVerdicts {
  readonly #clock: Clock
  readonly #isPinned: boolean
  readonly #known = new Map<Era, Known>()
  /** Eras whose version the server has refused since their last verdict. */
  readonly #refused = new Set<Era>()

  /** `auto` finds out; an era that the config names is the only one that is spoken, and is never doubted. */
  constructor(era: Era | 'auto', clock: Clock) {
    this.#clock = clock
    this.#isPinned = era !== 'auto'
    if (era !== 'auto')
      this.#known.set(era, {
        verdict: { speaks: true, decidedBy: 'config', at: clock.wall() },
        until: Infinity,
      })
  }

  /** The verdicts that there are, those included whose time is over. */
  get all(): Eras {
    return Object.fromEntries([...this.#known].map(([era, { verdict }]) => [era, verdict]))
  }

  /** Whether the server speaks an era; undefined while nobody knows, or not any more. */
  speaks(era: Era): boolean | undefined {
    const known = this.#known.get(era)
    if (known === undefined || this.#clock.now() >= known.until) return undefined
    return known.verdict.speaks
  }

  note(era: Era, speaks: boolean, decidedBy: 'probe' | 'silence' = 'probe'): void {
    if (this.#isPinned) return
    const isDoubtful = decidedBy === 'silence' || (!speaks && this.speaks(era) === true)
    const cause = this.#refused.delete(era) && !speaks ? 'version_error' : decidedBy
    const known = this.#known.get(era)
    const until = this.#clock.now() + (isDoubtful ? DOUBTFUL_MS : TTL_MS)
    // Each opening confirms it; what is told is since when it is so.
    if (known?.verdict.speaks === speaks && known.verdict.decidedBy === cause) known.until = until
    else this.#known.set(era, { verdict: { speaks, decidedBy: cause, at: this.#clock.wall() }, until })
  }

  /** The server has refused a version of this era: it is asked anew. False when that is not to be asked. */
  doubt(era: Era): boolean {
    const known = this.#known.get(era)
    if (this.#isPinned || known?.verdict.speaks !== true) return false
    known.until = 0
    this.#refused.add(era)
    return true
  }
}
