import type { Cancel, Clock, Millis } from '../../mesh/clock.ts'

/** Ends what nobody renews. */
export class Lease {
  readonly #clock: Clock
  readonly #onEnd: () => void
  #cancel: Cancel | undefined
  #endsAt: Millis = 0

  constructor(clock: Clock, onEnd: () => void) {
    this.#clock = clock
    this.#onEnd = onEnd
  }

  /** Time left; undefined while it is not running. */
  get remainingMs(): Millis | undefined {
    return this.#cancel === undefined ? undefined : Math.max(0, this.#endsAt - this.#clock.now())
  }

  /** Runs for `ms` from now; undefined: without an end. */
  renew(ms: Millis | undefined): void {
    this.stop()
    if (ms === undefined) return
    this.#endsAt = this.#clock.now() + ms
    this.#cancel = this.#clock.after(ms, () => {
      this.#cancel = undefined
      this.#onEnd()
    })
  }

  stop(): void {
    this.#cancel?.()
    this.#cancel = undefined
  }
}
