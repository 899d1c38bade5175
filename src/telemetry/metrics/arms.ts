/**
 * The arms of the experiments that the config has. Of others nothing is kept, or series would pile up for as long as the
 * process lives: those of an arm that leaves the config go when a scrape has told the last of their counts, and with the
 * next config at the latest. So do those of its calls and tasks that end even later.
 */
export class ArmsInForce {
  readonly #forget: (isGone: (arm: string) => boolean) => void
  #names: ReadonlySet<string> = new Set()
  /** Whether there ever were any. */
  #hasHad = false
  /** Whether some have left since the last scrape. */
  #haveLeft = false

  /** `forget` removes the series of arms that are gone. */
  constructor(forget: (isGone: (arm: string) => boolean) => void) {
    this.#forget = forget
  }

  /** Whether there is such an arm. */
  has(arm: string): boolean {
    return this.#names.has(arm)
  }

  /** A config with these arms is in force from now on. */
  follow(names: Iterable<string>): void {
    const before = this.#names
    this.#names = new Set(names)
    if (this.#hasHad) this.#forget((arm) => !this.has(arm) && !before.has(arm))
    for (const arm of before) if (!this.has(arm)) this.#haveLeft = true
    if (this.#names.size > 0) this.#hasHad = true
  }

  /** A scrape has told all that was counted. */
  told(): void {
    if (!this.#haveLeft) return
    this.#haveLeft = false
    this.#forget((arm) => !this.has(arm))
  }
}
