/** An hour, in milliseconds. */
export const HOUR_MS = 3_600_000

/** Most names counted apart. Signers may claim any name, so further names count together. */
const MAX_NAMES = 128

/** Counts events by name, and says when a name has more than a number of events within an hour. */
export class HourlyLimit {
  readonly #most: number
  readonly #now: () => number
  readonly #counts = new Map<string, { readonly since: number; count: number }>()

  /** `now` returns milliseconds of any clock. */
  constructor(most: number, now: () => number) {
    this.#most = most
    this.#now = now
  }

  /** Counts an event; returns whether the name now has more events than the limit. */
  isOver(name: string): boolean {
    const now = this.#now()
    const counted = this.#counts.get(name)
    const hour = counted === undefined || now - counted.since > HOUR_MS ? { since: now, count: 0 } : counted
    if (counted === undefined && this.#counts.size >= MAX_NAMES) return name === '' || this.isOver('')
    this.#counts.set(name, hour)
    return ++hour.count > this.#most
  }
}
