import { askedMs } from './pause-deadline.ts'
import type { Call, CallChanges, Outcome, Service } from './call.ts'
import { derive } from './call.ts'
import { Cancellation } from './cancel.ts'
import { type Cancel, type Clock, LATE_MS, type Millis } from './clock.ts'
import type { GatewayError } from './errors.ts'
import { ExpiryQueue, type Expiry } from './expiry.ts'

/** How long a limit waits that is met because the event loop stood still, in milliseconds: an answer may have come, and a large one in part. */
const GRACE_MS: Millis = 100

/**
 * Ends calls that take too long. Time for which the agent is being asked by the server does not count: what a
 * person needs to answer says nothing about the server.
 */
export class TimeLimit {
  readonly #clock: Clock
  readonly #usualMs: Millis
  readonly #queue: ExpiryQueue

  /** `usualMs`: the limit of nearly all calls; others cost a timer of their own. */
  constructor(clock: Clock, usualMs: Millis) {
    this.#clock = clock
    this.#usualMs = usualMs
    this.#queue = new ExpiryQueue(clock, usualMs)
  }

  /** Passes the call on under a signal that aborts with `error()` after `ms`, and when the call's own does. */
  run(
    call: Call,
    next: Service,
    ms: Millis,
    error: () => GatewayError,
    changes: CallChanges = {},
  ): Promise<Outcome> {
    const { record, signal } = call
    const limited = new Cancellation()
    const follow = () => limited.abort(signal.reason)
    if (signal.aborted) follow()
    else signal.addEventListener('abort', follow)
    const askedBefore = record.askedMs
    const since = this.#clock.now()
    let granted = 0
    let stoodStill = false
    const expire = () => {
      const now = this.#clock.now()
      const grace = askedMs(record, now) - askedBefore - granted
      granted += grace
      if (grace > 0) cancel = this.#clock.after(grace, expire)
      else if (!stoodStill && now - since - granted - ms >= LATE_MS) {
        stoodStill = true
        cancel = this.#clock.after(GRACE_MS, expire)
      } else limited.abort(error())
    }
    let expiry: Expiry | undefined
    let cancel: Cancel | undefined
    if (ms === this.#usualMs) expiry = this.#queue.add(expire)
    else cancel = this.#clock.after(ms, expire)
    changes.signal = limited
    const over = () => {
      if (expiry !== undefined) this.#queue.remove(expiry)
      cancel?.()
      signal.removeEventListener('abort', follow)
    }
    return next(derive(call, changes)).then(
      (outcome) => {
        over()
        return outcome
      },
      (defect: unknown) => {
        over()
        throw defect
      },
    )
  }
}
