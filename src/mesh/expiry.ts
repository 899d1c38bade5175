import type { Clock, Millis } from './clock.ts'

/** One timeout in the queue; what it holds is let go of as soon as it is removed. */
export interface Expiry {
  readonly at: Millis
  readonly expire: () => void
  previous: Expiry | undefined
  next: Expiry | undefined
  queued: boolean
}

/**
 * Many timeouts of one duration behind one timer: they expire in the order in which they were added, so a
 * linked queue holds them, and adding or removing one moves four references. A timer of the platform for each
 * call would cost ten times that.
 */
export class ExpiryQueue {
  readonly #clock: Clock
  readonly #ms: Millis
  #first: Expiry | undefined
  #last: Expiry | undefined
  #ticking = false

  /** `ms`: the duration of every timeout, in milliseconds. */
  constructor(clock: Clock, ms: Millis) {
    this.#clock = clock
    this.#ms = ms
  }

  /** Calls `expire` once when the duration has passed, unless the expiry is removed before. */
  add(expire: () => void): Expiry {
    const at = this.#clock.now() + this.#ms
    const expiry: Expiry = { at, expire, previous: this.#last, next: undefined, queued: true }
    if (this.#last === undefined) this.#first = expiry
    else this.#last.next = expiry
    this.#last = expiry
    this.#tick()
    return expiry
  }

  /** Takes an expiry back. Does nothing when it is over. */
  remove(expiry: Expiry): void {
    if (!expiry.queued) return
    expiry.queued = false
    const { previous, next } = expiry
    if (previous === undefined) this.#first = next
    else previous.next = next
    if (next === undefined) this.#last = previous
    else next.previous = previous
  }

  /** The timer is never taken back: it fires for the head of its time, and finds out whether that is still there. */
  #tick(): void {
    if (this.#ticking || this.#first === undefined) return
    this.#ticking = true
    this.#clock.after(Math.max(1, Math.ceil(this.#first.at - this.#clock.now())), () => {
      this.#ticking = false
      this.#expire()
      this.#tick()
    })
  }

  #expire(): void {
    const now = this.#clock.now()
    while (this.#first !== undefined && this.#first.at <= now) {
      const { expire } = this.#first
      this.remove(this.#first)
      expire()
    }
  }
}
