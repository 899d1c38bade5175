/** Most arms that have left and wait for a scrape; the first of them goes without. */
const MAX_LEFT = 16

/**
 * The arms of the experiments that the config has. Of others nothing is kept, or series would pile up for as long as the
 * process lives: those of an arm that leaves the config go when a scrape has told the last of their counts. Those of its calls
 * and tasks that end even later go with the next config.
 */
export class ArmsInForce {
  readonly #forget: (isGone: (arm: string) => boolean) => void
  #names: ReadonlySet<string> = new Set()
  /** Whether there ever were any. */
  #hasHad = false
  /** The arms that have left since the last scrape, the first one first. */
  readonly #left = new Set<string>()

  /** `forget` removes the series of arms that are gone. */
  constructor(forget: (isGone: (arm: string) => boolean) => void) {
    this.#forget = forget
  }

  /** Whether there is such an arm. */
  has(arm: string): boolean {
    return this.#names.has(arm)
  }

  /** All that there are. */
  get names(): Iterable<string> {
    return this.#names
  }

  /** A config with these arms is in force from now on. */
  follow(names: Iterable<string>): void {
    const before = this.#names
    this.#names = new Set(names)
    for (const arm of before) if (!this.has(arm)) this.#left.add(arm)
    for (const arm of this.#left) if (this.has(arm) || this.#left.size > MAX_LEFT) this.#left.delete(arm)
    if (this.#hasHad) this.#forget((arm) => !this.has(arm) && !this.#left.has(arm))
    if (this.#names.size > 0) this.#hasHad = true
  }

  /** A scrape has told all that was counted. */
  told(): void {
    if (this.#left.size === 0) return
    this.#left.clear()
    this.#forget((arm) => !this.has(arm))
  }
}
