/** Tells listeners that work must end early. Every `AbortSignal` is a `Signal`. */
export interface Signal {
  readonly aborted: boolean
  /** The cause of the abort; for calls a `GatewayError`. */
  readonly reason: unknown
  addEventListener(type: 'abort', listener: () => void, options?: { once?: boolean }): void
  removeEventListener(type: 'abort', listener: () => void): void
}

/** A signal that never aborts. Keeps no listeners, because thousands of waits may share the object. */
export const never: Signal = {
  aborted: false,
  reason: undefined,
  addEventListener: () => undefined,
  removeEventListener: () => undefined,
}

/** Does nothing: a callback for results and errors that nobody needs. */
export function ignore(): void {}

/** Most signals have no more listeners than this. */
const FEW = 4

/**
 * A signal with a method to abort it. Every call needs two signals, and the platform's `AbortController` costs 6 µs
 * each.
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

  /** Calls all listeners. A second `abort` does nothing. */
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
    // Copies a short array, because `push` reserves room for 17 listeners, and thousands of signals live as long as a
    // session.
    if (listeners === undefined) this.#listeners = [listener]
    else if (listeners.length < FEW) this.#listeners = listeners.concat(listener)
    else listeners.push(listener)
  }

  removeEventListener(_: 'abort', listener: () => void): void {
    const at = this.#listeners?.indexOf(listener) ?? -1
    if (at !== -1) this.#listeners?.splice(at, 1)
  }
}
