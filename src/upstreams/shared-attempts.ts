import { Cancellation, type Signal } from '../mesh/cancel.ts'
import type { Cancel, Clock, Millis } from '../mesh/clock.ts'
import { gatewayError, type GatewayError } from '../mesh/errors.ts'

/** Time until a second attempt begins beside the first, in milliseconds; the later ones follow at twice this interval. */
export const PATIENCE_MS: Millis = 1_000

/** Most attempts at a time. More than so many are begun in all only while somebody new comes. */
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
 * One task for all who want it done at the same time. As a rule that is one attempt. When it takes long, another is begun
 * beside it: the first may hang for as long as it is allowed to, while the server may have recovered. The first to
 * succeed counts for all, and ends the others.
 *
 * The oldest attempt always keeps all of its time, since a server may just be slow; what gives way is the one after it. When
 * the oldest fails, so it does for all who came before it began, and when the last one fails, for everybody: nobody waits
 * longer than two attempts take.
 */
export class SharedAttempts<T> {
  readonly #clock: Clock
  readonly #begin: (end: Signal) => Promise<T>
  readonly #patienceMs: Millis
  /** Oldest first. */
  #attempts: Attempt[] = []
  #waiters: Waiter<T>[] = []
  /** Attempts since the last time that nobody waited. */
  #begun = 0
  /** Whether somebody has come since the latest attempt. */
  #isWanted = false
  #cancelNext: Cancel | undefined

  /**
   * `begin` makes an attempt, which ends by itself, and soon once `end` aborts. `patienceMs`: Infinity for a task of which
   * one attempt has to be enough.
   */
  constructor(clock: Clock, begin: (end: Signal) => Promise<T>, patienceMs = PATIENCE_MS) {
    this.#clock = clock
    this.#begin = begin
    this.#patienceMs = patienceMs
  }

  /** Whether anybody waits. */
  get underWay(): boolean {
    return this.#waiters.length > 0
  }

  /** Joins the task that is under way, or begins the task. Rejects as an attempt did. */
  join(): Promise<T> {
    const since = this.#clock.now()
    const outcome = new Promise<T>((resolve, reject) => this.#waiters.push({ since, resolve, reject }))
    if (this.#attempts.length === 0) this.#attempt()
    else this.#isWanted = true
    this.#schedule()
    return outcome
  }

  /** Gives up what is under way, which rejects with `reason`. */
  abort(reason: GatewayError): void {
    const waiters = this.#waiters
    this.#end(reason)
    for (const { reject } of waiters) reject(reason)
  }

  /** Begins another attempt in time, if anybody is there for whom to. */
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
    // One that had to give way, and succeeded all the same.
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

  /** Nobody waits any more: what comes next begins anew. */
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
