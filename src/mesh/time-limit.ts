import { askedMs } from './pause-deadline.ts'
import {
  type Call,
  type CallChanges,
  type Channel,
  type Message,
  type Outcome,
  type Service,
  derive,
} from './call.ts'
import { Cancellation } from './cancel.ts'
import { type Cancel, type Clock, LATE_MS, type Millis } from './clock.ts'
import type { GatewayError } from './errors.ts'

/** How long a limit waits that is met because the event loop stood still, in milliseconds: an answer may have come, and a large one in part. */
const GRACE_MS: Millis = 100

/** How a limit was met that progress extends: no progress came for as long as the limit, or its longest time is over. */
export type Extension = 'silence' | 'longest'

const PROGRESS = 'notifications/progress'

/** The progress token of a request; undefined when its sender has asked for no progress. */
export function progressTokenOf(value: Message['value']): unknown {
  const { params } = value as { readonly params?: { readonly _meta?: { readonly progressToken?: unknown } } }
  return params?._meta?.progressToken
}

/** Whether a message is progress under a token, which is none when it is undefined. Some servers send a number back as text. */
export function isProgress({ value }: Pick<Message, 'value'>, token: unknown): boolean {
  if (value.method !== PROGRESS || token === undefined) return false
  const { params } = value as { readonly params?: { readonly progressToken?: unknown } }
  const told = params?.progressToken
  return told === token || (typeof token === 'number' && told === String(token))
}

/** Returns a channel that calls `progressed` for each progress message under the call's token. */
function watched(channel: Channel, token: unknown, progressed: () => void): Channel {
  return {
    open: () => channel.open(),
    pause: (retryMs, askNow) => channel.pause(retryMs, askNow),
    send(message, answer) {
      if (isProgress(message, token)) progressed()
      return channel.send(message, answer)
    },
  }
}

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

  /**
   * Passes the call on under a signal that aborts with `error()` after `ms`, and when the call's own does. Each progress of the call gives it
   * `ms` anew, and `longestMs` in all; a deadline among the `changes` moves with that.
   */
  run(
    call: Call,
    next: Service,
    ms: Millis,
    error: (extension?: Extension) => GatewayError,
    changes: CallChanges = {},
    longestMs: Millis = ms,
  ): Promise<Outcome> {
    const { record, signal } = call
    const limited = new Cancellation()
    const follow = () => limited.abort(signal.reason)
    if (signal.aborted) follow()
    else signal.addEventListener('abort', follow)
    const askedBefore = record.askedMs
    const since = this.#clock.now()
    let dueAt = since + ms
    let granted = 0
    let isExtended = false
    let stoodStill = false
    const grant = (now: Millis) => {
      const grace = askedMs(record, now) - askedBefore - granted
      granted += grace
      dueAt += grace
    }
    const expire = () => {
      const now = this.#clock.now()
      grant(now)
      if (dueAt > now) cancel = this.#clock.after(dueAt - now, expire)
      else if (!stoodStill && now - dueAt >= LATE_MS) {
        stoodStill = true
        cancel = this.#clock.after(GRACE_MS, expire)
      } else if (!isExtended) limited.abort(error())
      else limited.abort(error(dueAt < since + granted + longestMs ? 'silence' : 'longest'))
    }
    const progressed = () => {
      const now = this.#clock.now()
      grant(now)
      isExtended = true
      dueAt = Math.max(dueAt, Math.min(now + ms, since + granted + longestMs))
      if (changes.deadline !== undefined) changes.deadline.at = dueAt - granted
    }
    const token = longestMs > ms ? progressTokenOf(call.message.value) : undefined
    if (token !== undefined) changes.channel = watched(call.channel, token, progressed)
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
