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

/** Extra wait after a blocked event loop, in milliseconds: an answer may have arrived meanwhile, at least in part. */
const GRACE_MS: Millis = 100

/** Why an extended limit was met: no progress for the length of the limit, or the longest time is over. */
export type Extension = 'silence' | 'longest'

const PROGRESS = 'notifications/progress'

/** Returns the progress token of a request; undefined when its sender asked for no progress. */
export function progressTokenOf(value: Message['value']): unknown {
  const { params } = value as { readonly params?: { readonly _meta?: { readonly progressToken?: unknown } } }
  return params?._meta?.progressToken
}

/**
 * Whether a message reports progress for a token; false for an undefined token. Some servers return a number as text.
 */
export function isProgress({ value }: Pick<Message, 'value'>, token: unknown): boolean {
  if (value.method !== PROGRESS || token === undefined) return false
  const { params } = value as { readonly params?: { readonly progressToken?: unknown } }
  const told = params?.progressToken
  return told === token || (typeof token === 'number' && told === String(token))
}

/** Returns a channel that calls `progressed` for each progress message with the call's token. */
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

/** Ends calls that take too long. Time for asking the agent does not count: it says nothing about the server. */
export class TimeLimit {
  readonly #clock: Clock
  readonly #usualMs: Millis
  readonly #queue: ExpiryQueue

  /** `usualMs`: the limit of nearly all calls; a call with another limit needs its own timer. */
  constructor(clock: Clock, usualMs: Millis) {
    this.#clock = clock
    this.#usualMs = usualMs
    this.#queue = new ExpiryQueue(clock, usualMs)
  }

  /**
   * Passes the call on with a signal that aborts with `error()` after `ms`, or together with the call's own signal.
   * Each progress message extends the limit by `ms`, up to `longestMs` in all. A deadline in `changes` is extended as
   * well.
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

/** A timeout in the queue. References are released as soon as the timeout is removed. */
export interface Expiry {
  readonly at: Millis
  readonly expire: () => void
  previous: Expiry | undefined
  next: Expiry | undefined
  queued: boolean
}

/**
 * Many timeouts of equal duration behind a single timer. They expire in insertion order, so a linked queue holds them.
 * Adding or removing moves four references; a platform timer per call would cost ten times as much.
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

  /** Removes an expiry. Does nothing when the expiry is over. */
  remove(expiry: Expiry): void {
    if (!expiry.queued) return
    expiry.queued = false
    const { previous, next } = expiry
    if (previous === undefined) this.#first = next
    else previous.next = next
    if (next === undefined) this.#last = previous
    else next.previous = previous
  }

  /** The timer is never cancelled: it fires at the time of the head, and checks whether the head is still queued. */
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
