import { Cancellation, type Signal } from '../mesh/cancel.ts'
import type { Cancel, Clock, Millis } from '../mesh/clock.ts'
import { gatewayError, type GatewayError } from '../mesh/errors.ts'

/** Pause before a second attempt beside the first, in milliseconds; further attempts follow at twice this interval. */
export const PATIENCE_MS: Millis = 1_000

/** Most attempts at a time. After this many attempts, a further attempt begins only if a new caller has come. */
const MOST = 3

const replaced = gatewayError('cancelled', 'a later attempt has taken its place')

interface Attempt {
  readonly end: Cancellation
  readonly begunAt: Millis
}

interface Waiter<T> {
  readonly since: Millis
  readonly resolve: (value: T) => void
  readonly reject: (cause: unknown) => void
}

/**
 * Runs one task for all simultaneous callers, usually in a single attempt. If the attempt is slow, another attempt
 * starts beside it, because the first may hang although the server has recovered. The first success resolves all
 * callers and ends the other attempts. The oldest attempt always keeps its full time, because a server may just be
 * slow; above the limit, the second-oldest attempt ends. If the oldest attempt fails, the callers that came before it
 * began are rejected. If the last remaining attempt fails, all callers are rejected. So nobody waits longer than two
 * attempts take.
 */
export class SharedAttempts<T> {
  readonly #clock: Clock
  readonly #begin: (end: Signal) => Promise<T>
  readonly #patienceMs: Millis
  /** Oldest first. */
  #attempts: Attempt[] = []
  #waiters: Waiter<T>[] = []
  /** Number of attempts since the first waiting caller came. */
  #begun = 0
  /** Whether a caller has come since the latest attempt. */
  #isWanted = false
  #cancelNext: Cancel | undefined

  /**
   * `begin` makes an attempt that ends by itself, or soon after `end` aborts. `patienceMs`: Infinity for one attempt.
   */
  constructor(clock: Clock, begin: (end: Signal) => Promise<T>, patienceMs = PATIENCE_MS) {
    this.#clock = clock
    this.#begin = begin
    this.#patienceMs = patienceMs
  }

  /** Whether a caller waits. */
  get underWay(): boolean {
    return this.#waiters.length > 0
  }

  /** Joins or begins the task. Rejects like the attempt. */
  join(): Promise<T> {
    const since = this.#clock.now()
    const outcome = new Promise<T>((resolve, reject) => this.#waiters.push({ since, resolve, reject }))
    if (this.#attempts.length === 0) this.#attempt()
    else this.#isWanted = true
    this.#schedule()
    return outcome
  }

  /** Ends all attempts; callers reject with `reason`. */
  abort(reason: GatewayError): void {
    const waiters = this.#waiters
    this.#end(reason)
    for (const { reject } of waiters) reject(reason)
  }

  /** Schedules another attempt if a caller needs it. */
  #schedule(): void {
    const isDue = this.#begun < MOST || this.#isWanted
    if (!isDue || this.#cancelNext !== undefined || this.#patienceMs === Infinity) return
    const pauseMs = this.#begun === 1 ? this.#patienceMs : 2 * this.#patienceMs
    const latestAt = this.#attempts.at(-1)?.begunAt ?? -Infinity
    this.#cancelNext = this.#clock.after(Math.max(0, latestAt + pauseMs - this.#clock.now()), () => {
      this.#cancelNext = undefined
      this.#attempt()
      this.#schedule()
    })
  }

  #attempt(): void {
    const attempt = { end: new Cancellation(), begunAt: this.#clock.now() }
    this.#attempts.push(attempt)
    this.#begun++
    this.#isWanted = false
    this.#begin(attempt.end).then(
      (value) => this.#succeeded(attempt, value),
      (cause: unknown) => this.#failed(attempt, cause),
    )
    if (this.#attempts.length > MOST) for (const { end } of this.#attempts.splice(1, 1)) end.abort(replaced)
  }

  #succeeded(attempt: Attempt, value: T): void {
    // Ignores the late success of a replaced attempt.
    if (!this.#attempts.includes(attempt)) return
    const waiters = this.#waiters
    this.#attempts.splice(this.#attempts.indexOf(attempt), 1)
    this.#end(replaced)
    for (const { resolve } of waiters) resolve(value)
  }

  #failed(attempt: Attempt, cause: unknown): void {
    const at = this.#attempts.indexOf(attempt)
    if (at === -1) return
    this.#attempts.splice(at, 1)
    const isLast = this.#attempts.length === 0
    if (at > 0) return
    const isFor = ({ since }: Waiter<T>) => isLast || since <= attempt.begunAt
    const told = this.#waiters.filter(isFor)
    this.#waiters = this.#waiters.filter((waiter) => !isFor(waiter))
    if (this.#waiters.length === 0) this.#end(replaced)
    for (const { reject } of told) reject(cause)
  }

  /** Ends all attempts and removes all callers; the next caller starts a new task. */
  #end(reason: GatewayError): void {
    const attempts = this.#attempts
    this.#attempts = []
    this.#waiters = []
    this.#begun = 0
    this.#isWanted = false
    this.#cancelNext?.()
    this.#cancelNext = undefined
    for (const { end } of attempts) end.abort(reason)
  }
}
