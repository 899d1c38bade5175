import type { Call, Message, Outcome } from '../../mesh/call.ts'
import type { Signal } from '../../mesh/cancel.ts'
import type { Cancel, Clock, Millis } from '../../mesh/clock.ts'
import type { GatewayError } from '../../mesh/errors.ts'
import { parseExactly } from '../../protocol/json-parse.ts'
import { locate, members } from '../../protocol/json-span.ts'
import {
  errorText,
  INVALID_PARAMS,
  isObject,
  kindOf,
  METHOD_NOT_FOUND,
  paramsOf,
  requestText,
  resultText,
} from '../../protocol/jsonrpc.ts'
import { SUBSCRIPTION_ID_KEY } from '../../protocol/versions.ts'
import { FIRST_RETRY_MS, LAST_RETRY_MS, PATIENCE_MS } from '../http/http-listener.ts'
import { answered } from '../http/http-status.ts'
import { MAX_SUBSCRIPTIONS, type SessionState } from '../shared/session-state.ts'
import { metaOf, withMeta } from './modern-request.ts'

export interface SubscriptionEvents {
  acknowledged(): void
  /** Takes a notification, from which the subscription id is already removed. */
  message(message: Message): void
  /** The subscription has ended. `again`: whether a new request makes sense. */
  over(again: boolean): void
}

/** Sends a `subscriptions/listen`, given as JSON text; returns a cancel function. */
export type Subscribe = (text: string, subscription: Subscription) => () => void

/** One `subscriptions/listen` and its notifications, over any transport. */
export class Subscription {
  readonly #events: SubscriptionEvents
  #takeBack: (() => void) | undefined
  #over = false
  #honoured = true

  constructor(events: SubscriptionEvents) {
    this.#events = events
  }

  start(subscribe: Subscribe, text: string): void {
    const takeBack = subscribe(text, this)
    if (this.#over) takeBack()
    else this.#takeBack = takeBack
  }

  /** Cancels the subscription at the server, without calling `over`. */
  close(): void {
    this.#over = true
    this.#takeBack?.()
    this.#takeBack = undefined
  }

  message(message: Message): void {
    if (this.#over) return
    const kind = kindOf(message.value)
    if (kind === 'notification') this.#notified(message)
    else if (kind === 'response') this.#end(message.value)
  }

  /** Ends the subscription and calls `over`, unless it has ended already. */
  broken(again: boolean): void {
    if (this.#over) return
    this.close()
    this.#events.over(again)
  }

  #notified({ text, value }: Message): void {
    if (value.method !== 'notifications/subscriptions/acknowledged') {
      return this.#events.message(withoutSubscription({ text, value }))
    }
    const { notifications } = paramsOf(value)
    this.#honoured = isObject(notifications) && Object.keys(notifications).length > 0
    this.#events.acknowledged()
  }

  /** Handles the server's response, which ends or refuses the subscription. */
  #end({ error }: Message['value']): void {
    const refused = isObject(error) && [METHOD_NOT_FOUND, INVALID_PARAMS].includes(error.code as number)
    this.broken(this.#honoured && !refused)
  }
}

/** Removes the subscription id from a notification. */
function withoutSubscription({ text, value }: Message): Message {
  const params = paramsOf(value)
  const meta = locate(text, ['params', '_meta'])
  if (meta === undefined || !isObject(params._meta) || !(SUBSCRIPTION_ID_KEY in params._meta))
    return { text, value }
  const kept = members(text, meta.start).filter(({ key }) => key !== SUBSCRIPTION_ID_KEY)
  const parts = kept.map(({ keyStart, end }) => text.slice(keyStart, end))
  const own = `${text.slice(0, meta.start)}{${parts.join()}}${text.slice(meta.end)}`
  return { text: own, value: parseExactly(own) as Message['value'] }
}

export interface ModernListenerOptions {
  readonly clock: Clock
  readonly subscribe: Subscribe
  /** The `_meta` members of each request, as JSON text. */
  readonly meta: () => string
  readonly capabilities: unknown
  /** URIs of the resources whose changes are wanted. */
  readonly resources: () => ReadonlySet<string>
  readonly receive: (message: Message) => void
}

/** Changes of the wanted set within this time share a request, in milliseconds. */
const COALESCE_MS: Millis = 10

/** The lists with change notifications, and their keys in a subscription. */
const changes = {
  tools: 'toolsListChanged',
  prompts: 'promptsListChanged',
  resources: 'resourcesListChanged',
}

/**
 * Keeps one subscription open: retries with a doubling pause after a break, and replaces the subscription when the
 * wanted set changes. The old subscription is dropped once the new is open, so nothing is lost in between.
 */
export class ModernListener {
  readonly #options: ModernListenerOptions
  #current: Subscription | undefined
  #next: Subscription | undefined
  #retryMs: Millis = FIRST_RETRY_MS
  /** When the subscription opened; undefined without a subscription. */
  #openSince: Millis | undefined
  #cancelNext: Cancel | undefined
  #waiting: { readonly settled: Promise<void>; readonly settle: () => void } | undefined
  #started = false
  #closed = false
  #requests = 0

  constructor(options: ModernListenerOptions) {
    this.#options = options
  }

  /** Set while a subscription opens; resolves once the server has acknowledged, or after `PATIENCE_MS`. */
  get opening(): Promise<void> | undefined {
    return this.#waiting?.settled
  }

  start(): void {
    if (this.#started) return
    this.#started = true
    this.#wait()
    this.#connect()
  }

  /**
   * Requests a subscription at once, unless one is open or requested already; `anew` drops such a subscription first.
   */
  relisten(anew: boolean): void {
    if (!this.#started || (!anew && (this.#current ?? this.#next) !== undefined)) return
    this.#drop()
    this.#retryMs = FIRST_RETRY_MS
    this.#connectIn(0)
  }

  /** Replaces the subscription after the wanted set has changed. Resolves as `opening` does. */
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
      message: (message) => {
        this.#retryMs = FIRST_RETRY_MS
        receive(message)
      },
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
    this.#openSince = this.#options.clock.now()
    // If the wanted set has changed again, callers wait for the next subscription.
    if (this.#cancelNext === undefined) this.#waiting?.settle()
  }

  #over(subscription: Subscription, again: boolean): void {
    if (subscription !== this.#next && subscription !== this.#current) return
    // Drops both subscriptions: the server may accept only one at a time.
    this.#drop()
    this.#waiting?.settle()
    if (!again) return
    const openMs = this.#openSince === undefined ? 0 : this.#options.clock.now() - this.#openSince
    this.#openSince = undefined
    // Only a subscription that stayed open for long resets the pause.
    if (openMs >= LAST_RETRY_MS) this.#retryMs = FIRST_RETRY_MS
    this.#connectIn(this.#retryMs)
    this.#retryMs = Math.min(this.#retryMs * 2, LAST_RETRY_MS)
  }

  #drop(): void {
    this.#current?.close()
    this.#next?.close()
    this.#current = this.#next = undefined
  }

  /** Returns the notifications offered by the server and wanted here. */
  #wanted(): Record<string, unknown> {
    const { capabilities, resources } = this.#options
    const wanted: Record<string, unknown> = {}
    for (const [capability, key] of Object.entries(changes)) {
      const offered = isObject(capabilities) ? capabilities[capability] : undefined
      if (isObject(offered) && offered.listChanged === true) wanted[key] = true
    }
    const uris = [...resources()]
    if (uris.length > 0) wanted.resourceSubscriptions = uris
    return wanted
  }
}

export interface SessionActs {
  /** Finds out whether the server answers. Rejects with a `GatewayError`. */
  ping(signal: Signal): Promise<unknown>
  /**
   * Tells the server that the set of subscribed resources has changed. Resolves once the server has acknowledged, or
   * after a time limit.
   */
  subscribed(): Promise<void>
}

/** Answers session requests in place of a modern server; `state` outlives the sessions of a caller. */
export class KeptSession {
  readonly #initializeParams: Message['value']
  readonly #capabilities: Message['value']
  readonly #acts: SessionActs
  readonly #state: SessionState
  #meta: string

  constructor(
    initializeParams: Message['value'],
    { value: { capabilities } }: Message,
    state: SessionState,
    acts: SessionActs,
  ) {
    this.#initializeParams = initializeParams
    this.#capabilities = isObject(capabilities) ? capabilities : {}
    this.#acts = acts
    this.#state = state
    this.#meta = metaOf(initializeParams, state.level)
  }

  get meta(): string {
    return this.#meta
  }

  /** Answers a session request; undefined for other requests. */
  answer(call: Call): Promise<Outcome> | undefined {
    const { level, uri } = paramsOf(call.message.value)
    const { logging, resources } = this.#capabilities
    switch (call.method) {
      case 'ping':
        return this.#ping(call)
      case 'logging/setLevel':
        if (logging === undefined || typeof level !== 'string') return Promise.resolve(unoffered(call))
        this.#state.note(call)
        this.#meta = metaOf(this.#initializeParams, level)
        return Promise.resolve(done(call))
      case 'resources/subscribe':
      case 'resources/unsubscribe': {
        const offered = isObject(resources) && resources.subscribe === true && typeof uri === 'string'
        return offered ? this.#subscribe(call, uri) : Promise.resolve(unoffered(call))
      }
      default:
        return undefined
    }
  }

  #ping(call: Call): Promise<Outcome> {
    return this.#acts.ping(call.signal).then(
      () => done(call),
      (error: GatewayError) => ({ kind: 'failed', error }),
    )
  }

  async #subscribe(call: Call, uri: string): Promise<Outcome> {
    const { subscriptions } = this.#state
    const isOneMore = call.method === 'resources/subscribe' && !subscriptions.has(uri)
    if (isOneMore && subscriptions.size >= MAX_SUBSCRIPTIONS)
      return refusal(call, INVALID_PARAMS, `too many subscriptions (limit ${MAX_SUBSCRIPTIONS})`)
    this.#state.note(call)
    await this.#acts.subscribed()
    return done(call)
  }
}

function done(call: Call): Outcome {
  return local(call, resultText(call.id, '{}'))
}

function unoffered(call: Call): Outcome {
  return refusal(call, METHOD_NOT_FOUND, 'the server does not offer this')
}

function refusal(call: Call, code: number, message: string): Outcome {
  return local(call, errorText(call.id, code, message))
}

function local({ id }: Call, text: string): Outcome {
  return answered(id, { text, value: parseExactly(text) as Message['value'] }, 200)
}
