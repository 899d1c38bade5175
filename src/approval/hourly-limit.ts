/** An hour, in milliseconds. */
export const HOUR_MS = 3_600_000

/** Limit for the number of names with separate counts. Signers may claim any name, so further names share one count. */
const MAX_NAMES = 128

/** Counts the events of each name, up to a limit per name and hour. */
export class HourlyLimit {
  readonly #limit: number
  readonly #now: () => number
  readonly #counts = new Map<string, { readonly since: number; count: number }>()

  /** `now` returns milliseconds of any clock. */
  constructor(limit: number, now: () => number) {
    this.#limit = limit
    this.#now = now
  }

  /** Counts an event. Returns true if the name now has more events than the limit. */
  isOver(name: string): boolean {
    const now = this.#now()
    const counted = this.#counts.get(name)
    const hour = counted === undefined || now - counted.since > HOUR_MS ? { since: now, count: 0 } : counted
    if (counted === undefined && this.#counts.size >= MAX_NAMES) return name === '' || this.isOver('')
    this.#counts.set(name, hour)
    return ++hour.count > this.#limit
  }
}
