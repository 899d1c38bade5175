/** Announces the end of something, early. Every `AbortSignal` is one. */
export interface Signal {
  readonly aborted: boolean
  /** Why; a `GatewayError` on the way of a call. */
  readonly reason: unknown
  addEventListener(type: 'abort', listener: () => void, options?: { once?: boolean }): void
  removeEventListener(type: 'abort', listener: () => void): void
}

/** A signal that never aborts. It keeps no listeners, because thousands of waits may share it. */
export const never: Signal = {
  aborted: false,
  reason: undefined,
  addEventListener: () => undefined,
  removeEventListener: () => undefined,
}

/** Takes an outcome that nobody waits for, or an error that changes nothing. */
export function ignore(): void {}

/** Most signals have no more listeners than this. */
const FEW = 4

/**
 * A signal and its trigger in one: an `AbortController` without events and realms.
 * Every call needs two of these, and the platform's cost 6 µs each.
 */
export class Cancellation implements Signal {
  #reason: unknown
  #aborted = false
  #listeners: (() => void)[] | undefined

  get aborted(): boolean {
    return this.#aborted
  }

  get reason(): unknown {
    return this.#reason
  }

  /** Tells all listeners, once; a later call does nothing. */
  abort(reason: unknown): void {
    if (this.#aborted) return
    this.#aborted = true
    this.#reason = reason
    const listeners = this.#listeners
    for (let tell = listeners?.shift(); tell !== undefined; tell = listeners?.shift()) tell()
  }

  addEventListener(_: 'abort', listener: () => void): void {
    if (this.#aborted) return
    const listeners = this.#listeners
    // By hand: `push` makes room for 17 of them, and of signals that live as long as a session there are thousands.
    if (listeners === undefined) this.#listeners = [listener]
    else if (listeners.length < FEW) this.#listeners = listeners.concat(listener)
    else listeners.push(listener)
  }

  removeEventListener(_: 'abort', listener: () => void): void {
    const at = this.#listeners?.indexOf(listener) ?? -1
    if (at !== -1) this.#listeners?.splice(at, 1)
  }
}
