/** Most removed arms that wait for a scrape; beyond this, the oldest is dropped without a scrape. */
const MAX_LEFT = 16

/**
 * The arms of the experiments in the config. When an arm leaves the config, removes its series after a scrape has read
 * the final counts. Otherwise the number of series would grow as long as the process lives. A call or task of the arm
 * that ends later creates series again; the next config removes them.
 */
export class ArmsInForce {
  readonly #forget: (isGone: (arm: string) => boolean) => void
  #names: ReadonlySet<string> = new Set()
  /** True when any arm has existed in this process. */
  #hasHad = false
  /** The arms removed since the last scrape, oldest first. */
  readonly #left = new Set<string>()

  /** `forget` removes the series of removed arms. */
  constructor(forget: (isGone: (arm: string) => boolean) => void) {
    this.#forget = forget
  }

  has(arm: string): boolean {
    return this.#names.has(arm)
  }

  get names(): Iterable<string> {
    return this.#names
  }

  /** Applies the arm names of a new config. */
  follow(names: Iterable<string>): void {
    const before = this.#names
    this.#names = new Set(names)
    for (const arm of before) if (!this.has(arm)) this.#left.add(arm)
    for (const arm of this.#left) if (this.has(arm) || this.#left.size > MAX_LEFT) this.#left.delete(arm)
    if (this.#hasHad) this.#forget((arm) => !this.has(arm) && !this.#left.has(arm))
    if (this.#names.size > 0) this.#hasHad = true
  }

  /** Removes the series of removed arms. Called after a scrape has read all counts. */
  told(): void {
    if (this.#left.size === 0) return
    this.#left.clear()
    this.#forget((arm) => !this.has(arm))
  }
}
