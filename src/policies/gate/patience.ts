import type { Millis } from '../../mesh/clock.ts'
import { formatDuration, roundedDuration } from '../../units/duration.ts'

const REMEMBERED = 5

/** Patience with a server, as a multiple of its longest recent outage. */
const MARGIN = 1.5

/** How long list requests wait, and calls that can be answered in another way, in milliseconds. */
export const SHORT_PATIENCE_MS: Millis = 1_000

export interface PatienceSnapshot {
  readonly ms: Millis
  readonly why: string
}

/** How long calls wait for a server: the usual time, or longer if its own outages took longer. */
export class Patience {
  readonly #usual: Millis
  readonly #most: Millis
  /** How long the latest outages took, the latest last. */
  readonly #outages: Millis[] = []

  /** `usual` and `most`: bounds, in milliseconds. */
  constructor(usual: Millis, most: Millis) {
    this.#usual = usual
    this.#most = most
  }

  note(ms: Millis): void {
    this.#outages.push(ms)
    if (this.#outages.length > REMEMBERED) this.#outages.shift()
  }

  /** The patience from the beginning of a loss, in milliseconds. */
  get ms(): Millis {
    if (this.#usual === 0) return 0
    // An outage longer than any call waits does not count: it shows nothing about restarts.
    const longest = Math.max(0, ...this.#outages.filter((outage) => outage <= this.#most))
    return Math.max(this.#usual, Math.min(this.#most, Math.ceil(longest * MARGIN)))
  }

  snapshot(): PatienceSnapshot {
    const { ms } = this
    if (ms === this.#usual) return { ms, why: `as configured (${formatDuration(ms)})` }
    const longest = Math.max(...this.#outages.filter((outage) => outage <= this.#most))
    return {
      ms,
      why: `its longest of ${this.#outages.length} recent outages took ${roundedDuration(longest)}`,
    }
  }
}
