import type { Signal } from '../../mesh/cancel.ts'
import { orAborted } from '../failure.ts'

/** One attempt that many wait for. Each may leave; it is abandoned when the last one has left. */
export class SingleFlight<T> {
  readonly #abandon = new AbortController()
  readonly #result: Promise<T>
  #waiting = 0
  #landed = false

  /** `failed` is told when the attempt did not succeed. */
  constructor(start: (signal: Signal) => Promise<T>, failed: () => void) {
    this.#result = start(this.#abandon.signal)
    this.#result.then(() => (this.#landed = true), failed)
  }

  /** What the attempt came to. Rejects when it failed, or with why `signal` aborted. */
  async join(signal: Signal): Promise<T> {
    this.#waiting++
    try {
      return await orAborted(this.#result, signal)
    } finally {
      if (--this.#waiting === 0 && !this.#landed) this.#abandon.abort(signal.reason)
    }
  }
}
