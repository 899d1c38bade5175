/** Most removed arms that wait for a scrape; beyond this, the oldest is dropped without a scrape. */
const MAX_LEFT = 16

/**
 * The arms of the experiments in the config. Other arms keep no series, or series would pile up for the life of the
 * process. When an arm leaves the config, its series stay until a scrape has read the final counts. Series of its calls
 * and tasks that end even later go with the next config.
 */
export class ArmsInForce {
  readonly #forget: (isGone: (arm: string) => boolean) => void
  #names: ReadonlySet<string> = new Set()
  /** Whether any arm ever existed. */
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

  /** Follows a new config with these arms. */
  follow(names: Iterable<string>): void {
    const before = this.#names
    this.#names = new Set(names)
    for (const arm of before) if (!this.has(arm)) this.#left.add(arm)
    for (const arm of this.#left) if (this.has(arm) || this.#left.size > MAX_LEFT) this.#left.delete(arm)
    if (this.#hasHad) this.#forget((arm) => !this.has(arm) && !this.#left.has(arm))
    if (this.#names.size > 0) this.#hasHad = true
  }

  /** Called after a scrape has read all counts. */
  told(): void {
    if (this.#left.size === 0) return
    this.#left.clear()
    this.#forget((arm) => !this.has(arm))
  }
}
