import type { Signal } from '../../mesh/cancel.ts'

/** Why held calls were let go. */
export type ReleaseReason = 'killed' | 'disarmed' | 'ended' | 'shadow' | 'protected'

/**
 * Lets go of everything that waits on it, once. A thousand calls may: a listener leaves in one step, and one
 * that throws keeps no other from being told.
 */
export class Release implements Signal {
  readonly #listeners = new Set<() => void>()
  #reason: ReleaseReason | undefined

  get aborted(): boolean {
    return this.#reason !== undefined
  }

  get reason(): ReleaseReason | undefined {
    return this.#reason
  }

  abort(reason: ReleaseReason): void {
    if (this.#reason !== undefined) return
    this.#reason = reason
    for (const tell of this.#listeners) {
      try {
        tell()
      } catch {
        // Its own defect; the next one must be let go all the same.
      }
    }
    this.#listeners.clear()
  }

  addEventListener(_: 'abort', listener: () => void): void {
    if (this.#reason === undefined) this.#listeners.add(listener)
  }

  removeEventListener(_: 'abort', listener: () => void): void {
    this.#listeners.delete(listener)
  }
}
