import type { Cancel, Clock, Millis } from './clock.ts'

/** Length of a burst of equal notifications, in milliseconds: the first and the last of a burst are sent. */
const COALESCE_MS: Millis = 250

/** Thins out bursts of equal notifications: the first goes out at once, the last at the end of the burst. */
export class Coalescing<Told> {
  readonly #clock: Clock
  readonly #tell: (told: Told) => void
  /** Running bursts by key; undefined for none, because thousands of sessions each have such an object. */
  #bursts: Map<string, { readonly cancel: Cancel; last: Told | undefined }> | undefined

  constructor(clock: Clock, tell: (told: Told) => void) {
    this.#clock = clock
    this.#tell = tell
  }

  /** Sends a notification at once, or at the end of a running burst. Notifications with equal keys count as equal. */
  tell(key: string, told: Told): void {
    const burst = this.#bursts?.get(key)
    if (burst !== undefined) {
      burst.last = told
      return
    }
    this.#tell(told)
    const cancel = this.#clock.after(COALESCE_MS, () => {
      const last = this.#bursts?.get(key)?.last
      this.#bursts?.delete(key)
      if (last !== undefined) this.tell(key, last)
    })
    this.#bursts ??= new Map()
    this.#bursts.set(key, { cancel, last: undefined })
  }

  /** Ends all running bursts without a last notification. */
  end(): void {
    for (const { cancel } of this.#bursts?.values() ?? []) cancel()
    this.#bursts = undefined
  }
}
