import type { Cancel, Clock, Millis } from '../../mesh/clock.ts'

/** Rounds of one task, never two at once: each begins as soon as anybody wants one, the soonest wish counts. */
export class Rounds {
  readonly #clock: Clock
  readonly #round: () => Promise<Millis>
  #next: { readonly at: Millis; readonly cancel: Cancel } | undefined
  #running = false
  #again = false
  #stopped = false

  /** `round` never rejects, and resolves to the time until the next one, in milliseconds. */
  constructor(clock: Clock, round: () => Promise<Millis>) {
    this.#clock = clock
    this.#round = round
  }

  get running(): boolean {
    return this.#running
  }

  get stopped(): boolean {
    return this.#stopped
  }

  /** A round begins `delayMs` from now, unless one begins sooner anyway; if one is under way by then, right after it. */
  within(delayMs: Millis): void {
    const at = this.#clock.now() + delayMs
    if (this.#stopped || (this.#next !== undefined && this.#next.at <= at)) return
    this.#unschedule()
    this.#next = { at, cancel: this.#clock.after(delayMs, () => void this.#begin()) }
  }

  /** Whatever anybody has wished for by now is void. */
  forget(): void {
    this.#unschedule()
    this.#again = false
  }

  /** No round begins any more; one that is under way comes to its end. */
  stop(): void {
    this.#stopped = true
    this.#unschedule()
  }

  async #begin(): Promise<void> {
    this.#next = undefined
    if (this.#running) {
      this.#again = true
      return
    }
    this.#running = true
    this.#again = false
    const delayMs = await this.#round()
    this.#running = false
    this.within(this.#again ? 0 : delayMs)
  }

  #unschedule(): void {
    this.#next?.cancel()
    this.#next = undefined
  }
}
