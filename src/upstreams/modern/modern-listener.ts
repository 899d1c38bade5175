import type { Message } from '../../mesh/call.ts'
import type { Cancel, Clock, Millis } from '../../mesh/clock.ts'
import { isObject, requestText } from '../../protocol/jsonrpc.ts'
import { FIRST_RETRY_MS, LAST_RETRY_MS, PATIENCE_MS } from '../http/http-listener.ts'
import { withMeta } from './modern-request.ts'
import { Subscription, type Subscribe } from './subscription.ts'

export interface ModernListenerOptions {
  readonly clock: Clock
  readonly subscribe: Subscribe
  /** The members of `_meta` that each request has, as JSON text. */
  readonly meta: () => string
  /** What the server can do. */
  readonly capabilities: unknown
  /** URIs of the resources whose changes are wanted; may change. */
  readonly resources: ReadonlySet<string>
  readonly receive: (message: Message) => void
}

/** Several changes of what is wanted within this time become one request, in milliseconds. */
const COALESCE_MS: Millis = 10

/** The lists whose changes a server may tell of, and what they are called in a subscription. */
const changes = {
  tools: 'toolsListChanged',
  prompts: 'promptsListChanged',
  resources: 'resourcesListChanged',
}

/**
 * Keeps one subscription open: asks again with a doubling pause when it breaks, and for another one when other
 * things are wanted. The old one is dropped when the new one is there, so that nothing is lost in between.
 */
export class ModernListener {
  readonly #options: ModernListenerOptions
  #current: Subscription | undefined
  #next: Subscription | undefined
  #retryMs: Millis = FIRST_RETRY_MS
  #cancelNext: Cancel | undefined
  #waiting: { readonly settled: Promise<void>; readonly settle: () => void } | undefined
  #started = false
  #closed = false
  #requests = 0

  constructor(options: ModernListenerOptions) {
    this.#options = options
  }

  /** Set while a subscription is being opened; resolves when the server has acknowledged it, or does not soon. */
  get opening(): Promise<void> | undefined {
    return this.#waiting?.settled
  }

  /** Begins, unless it has. */
  start(): void {
    if (this.#started) return
    this.#started = true
    this.#wait()
    this.#connect()
  }

  /** Other things are wanted now. Resolves as `opening` does. */
  refresh(): Promise<void> {
    if (this.#closed) return Promise.resolve()
    this.#started = true
    this.#wait()
    this.#connectIn(COALESCE_MS)
    return this.opening ?? Promise.resolve()
  }

  close(): void {
    this.#closed = true
    this.#cancelNext?.()
    this.#drop()
    this.#waiting?.settle()
  }

  #wait(): void {
    this.#waiting ??= this.#newWait()
  }

  #newWait() {
    let settle: () => void = () => undefined
    const settled = new Promise<void>((resolve) => (settle = resolve))
    const done = () => {
      cancel()
      this.#waiting = undefined
      settle()
    }
    const cancel = this.#options.clock.after(PATIENCE_MS, done)
    return { settled, settle: done }
  }

  #connectIn(delayMs: Millis): void {
    this.#cancelNext?.()
    if (!this.#closed) this.#cancelNext = this.#options.clock.after(delayMs, () => this.#connect())
  }

  #connect(): void {
    this.#cancelNext = undefined
    const notifications = this.#wanted()
    this.#next?.close()
    this.#next = undefined
    if (this.#closed || Object.keys(notifications).length === 0) {
      this.#drop()
      return this.#waiting?.settle()
    }
    const { subscribe, meta, receive } = this.#options
    const id = `breakwater-listen-${++this.#requests}`
    const text = requestText(id, 'subscriptions/listen', { notifications })
    const subscription: Subscription = new Subscription({
      acknowledged: () => this.#acknowledged(subscription),
      message: receive,
      over: (again) => this.#over(subscription, again),
    })
    this.#next = subscription
    subscription.start(subscribe, withMeta(text, meta()))
  }

  #acknowledged(subscription: Subscription): void {
    if (subscription !== this.#next) return
    this.#current?.close()
    this.#current = subscription
    this.#next = undefined
    this.#retryMs = FIRST_RETRY_MS
    // Who waits for something that is wanted since waits for the next one.
    if (this.#cancelNext === undefined) this.#waiting?.settle()
  }

  #over(subscription: Subscription, again: boolean): void {
    if (subscription !== this.#next && subscription !== this.#current) return
    // The server may not want to have two of them at once.
    this.#drop()
    this.#waiting?.settle()
    if (!again) return
    this.#connectIn(this.#retryMs)
    this.#retryMs = Math.min(this.#retryMs * 2, LAST_RETRY_MS)
  }

  #drop(): void {
    this.#current?.close()
    this.#next?.close()
    this.#current = this.#next = undefined
  }

  /** What the server can tell of, and somebody wants to know. */
  #wanted(): Record<string, unknown> {
    const { capabilities, resources } = this.#options
    const wanted: Record<string, unknown> = {}
    for (const [capability, key] of Object.entries(changes)) {
      const offered = isObject(capabilities) ? capabilities[capability] : undefined
      if (isObject(offered) && offered.listChanged === true) wanted[key] = true
    }
    if (resources.size > 0) wanted.resourceSubscriptions = [...resources]
    return wanted
  }
}
