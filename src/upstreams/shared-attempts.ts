import { Cancellation, type Signal } from '../mesh/cancel.ts'
import type { Cancel, Clock, Millis } from '../mesh/clock.ts'
import { gatewayError, type GatewayError } from '../mesh/errors.ts'

/** For how long the first attempt is enough, in milliseconds; twice as long each of the next. */
export const PATIENCE_MS: Millis = 1_000

/** Most attempts at a time: past it the oldest is given up. More are begun only when somebody new comes. */
const MOST = 3

const replaced = gatewayError('cancelled', 'a later attempt has taken its place')

/** What many wait for, as long as it is under way. */
interface Wait<T> {
  readonly outcome: Promise<T>
  readonly resolve: (value: T) => void
  readonly reject: (cause: unknown) => void
  /** The attempts, oldest first. */
  readonly attempts: Set<Cancellation>
  begun: number
  latestAt: Millis
  /** Whether somebody has come since the latest. */
  isWanted: boolean
  cancelNext: Cancel | undefined
}

/**
 * One task for all who want it done at the same time. As a rule that is one attempt. When it takes long, another is begun
 * beside it: the first may hang for as long as it is allowed to, while the server has come to its senses. The first to
 * succeed counts for all, and ends the others; when all have failed, so has the task.
 */
export class SharedAttempts<T> {
  readonly #clock: Clock
  readonly #begin: (end: Signal) => Promise<T>
  readonly #patienceMs: Millis
  #wait: Wait<T> | undefined

  /**
   * `begin` makes an attempt, which ends by itself, and soon once `end` aborts. `patienceMs`: Infinity for a task of which
   * one attempt has to be enough.
   */
  constructor(clock: Clock, begin: (end: Signal) => Promise<T>, patienceMs = PATIENCE_MS) {
    this.#clock = clock
    this.#begin = begin
    this.#patienceMs = patienceMs
  }

  /** What is under way, or begins. Rejects as the last attempt does. */
  join(): Promise<T> {
    const wait = (this.#wait ??= newWait<T>())
    if (wait.begun === 0) this.#attempt(wait)
    else wait.isWanted = true
    this.#schedule(wait)
    return wait.outcome
  }

  /** Gives up what is under way; resolves when nothing is. */
  async abort(reason: GatewayError): Promise<void> {
    const wait = this.#wait
    if (wait === undefined) return
    for (const end of wait.attempts) end.abort(reason)
    await wait.outcome.then(ignore, ignore)
  }

  /** Begins another attempt in time, if anybody is there for whom to. */
  #schedule(wait: Wait<T>): void {
    const isDue = wait.begun < MOST || wait.isWanted
    if (!isDue || wait.cancelNext !== undefined || this.#patienceMs === Infinity) return
    const pauseMs = wait.begun === 1 ? this.#patienceMs : 2 * this.#patienceMs
    const leftMs = Math.max(0, wait.latestAt + pauseMs - this.#clock.now())
    wait.cancelNext = this.#clock.after(leftMs, () => {
      wait.cancelNext = undefined
      this.#attempt(wait)
      this.#schedule(wait)
    })
  }

  #attempt(wait: Wait<T>): void {
    const end = new Cancellation()
    wait.begun++
    wait.isWanted = false
    wait.latestAt = this.#clock.now()
    wait.attempts.add(end)
    this.#begin(end).then(
      (value) => {
        wait.attempts.delete(end)
        this.#over(wait)
        wait.resolve(value)
        for (const other of wait.attempts) other.abort(replaced)
      },
      (cause: unknown) => {
        wait.attempts.delete(end)
        if (wait.attempts.size > 0) return
        this.#over(wait)
        wait.reject(cause)
      },
    )
    const [oldest] = wait.attempts
    if (wait.attempts.size > MOST) oldest?.abort(replaced)
  }

  #over(wait: Wait<T>): void {
    wait.cancelNext?.()
    if (this.#wait === wait) this.#wait = undefined
  }
}

function newWait<T>(): Wait<T> {
  let resolve: (value: T) => void = ignore
  let reject: (cause: unknown) => void = ignore
  const outcome = new Promise<T>((onValue, onCause) => {
    resolve = onValue
    reject = onCause
  })
  return {
    outcome,
    resolve,
    reject,
    attempts: new Set(),
    begun: 0,
    latestAt: -Infinity,
    isWanted: false,
    cancelNext: undefined,
  }
}

function ignore(): void {}
