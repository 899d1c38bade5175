import type { Cancel, Clock, Millis } from '../mesh/clock.ts'

/** Equal notifications within this time become one, in milliseconds. */
const COALESCE_MS: Millis = 250

/** Thins out bursts of equal notifications: the first goes out at once, the last when the burst is over. */
export class Coalescing {
  readonly #clock: Clock
  readonly #tell: (text: string) => void
  readonly #bursts = new Map<string, { readonly cancel: Cancel; last: string | undefined }>()

  constructor(clock: Clock, tell: (text: string) => void) {
    this.#clock = clock
    this.#tell = tell
  }

  /** Those of one method are equal. */
  tell(method: string, text: string): void {
    const burst = this.#bursts.get(method)
    if (burst !== undefined) {
      burst.last = text
      return
    }
    this.#tell(text)
    const cancel = this.#clock.after(COALESCE_MS, () => {
      const last = this.#bursts.get(method)?.last
      this.#bursts.delete(method)
      if (last !== undefined) this.tell(method, last)
    })
    this.#bursts.set(method, { cancel, last: undefined })
  }

  /** Bursts that are under way are not told the end of. */
  end(): void {
    for (const { cancel } of this.#bursts.values()) cancel()
  }
}
