/** Times in a row after which something is a habit. */
const HABIT = 3

/** Exceptions in a row after which a tool without that habit is known to do without. */
const NO_HABIT = 3

/** Exceptions in a row after which even a habit is given up: the server has changed for good. */
const LOST = 20

/**
 * What a tool does as a rule. An exception to a rule is suspicious; what never was a rule soon is not; and
 * one that persists becomes the rule, for a false alarm must not last.
 */
export class Habit {
  #kept = 0
  #broken = 0

  /** It kept to it, once more. */
  keep(): void {
    this.#kept++
    this.#broken = 0
  }

  /** It did not. */
  break(): void {
    this.#broken++
    if (this.#broken >= LOST) this.#kept = 0
  }

  /** Whether it always does. */
  get strong(): boolean {
    return this.#kept >= HABIT
  }

  /** Whether it is not known to do without: early on, nobody can tell. */
  get possible(): boolean {
    return this.strong || this.#broken < NO_HABIT
  }
}
