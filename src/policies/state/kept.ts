/** What the admin API shows of a state: plain facts. */
export interface Observable {
  snapshot(): unknown
}

/**
 * The states of one server, by the settings that made them. Overrides give tools of one server different settings
 * at the same time, which the store, with its one state per owner, would take for reloads. Past `most`, that which
 * has not been asked for the longest goes; chains and calls which hold it go on with it.
 */
export class Kept<State extends Observable> implements Observable {
  readonly #states = new Map<string, State>()
  readonly #most: number

  /** `most`: how many states are kept, at least 1. */
  constructor(most = 64) {
    this.#most = most
  }

  /** The state under these settings, created at the first asking. */
  get(settings: unknown, create: () => State): State {
    const key = JSON.stringify(settings)
    const state = this.#states.get(key) ?? create()
    this.#states.delete(key)
    this.#states.set(key, state)
    if (this.#states.size > this.#most) {
      for (const [oldest] of this.#states) {
        this.#states.delete(oldest)
        break
      }
    }
    return state
  }

  snapshot(): unknown[] {
    return [...this.#states.values()].map((state) => state.snapshot())
  }
}
