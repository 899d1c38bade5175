import { parseExactly } from '../../protocol/json-parse.ts'
import type { Message } from '../../mesh/call.ts'
import { INVALID_PARAMS, isObject, kindOf, METHOD_NOT_FOUND, paramsOf } from '../../protocol/jsonrpc.ts'
import { locate, members } from '../../protocol/json-span.ts'
import { SUBSCRIPTION_ID_KEY } from '../../protocol/modern.ts'

export interface SubscriptionEvents {
  /** The server listens to us listening. */
  acknowledged(): void
  /** A notification, as if there were no subscription. */
  message(message: Message): void
  /** Nothing comes any more; `again`: it makes sense to ask anew. */
  over(again: boolean): void
}

/** Sends a `subscriptions/listen`, given as JSON text; returns what takes it back. */
export type Subscribe = (text: string, subscription: Subscription) => () => void

/** One `subscriptions/listen` and the notifications that answer it, whatever they come by. */
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

  /** Tells the server, and nobody else. */
  close(): void {
    this.#over = true
    this.#takeBack?.()
    this.#takeBack = undefined
  }

  /** Takes what the server sent. */
  message(message: Message): void {
    if (this.#over) return
    const kind = kindOf(message.value)
    if (kind === 'notification') this.#notified(message)
    else if (kind === 'response') this.#end(message.value)
  }

  /** Nothing comes any more, and the server did not say so. */
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

  /** The server ended it in order, or refused it. */
  #end({ error }: Message['value']): void {
    const refused = isObject(error) && [METHOD_NOT_FOUND, INVALID_PARAMS].includes(error.code as number)
    this.broken(this.#honoured && !refused)
  }
}

/** A notification without the id of the subscription that it came by. */
export function withoutSubscription({ text, value }: Message): Message {
  const params = paramsOf(value)
  const meta = locate(text, ['params', '_meta'])
  if (meta === undefined || !isObject(params._meta) || !(SUBSCRIPTION_ID_KEY in params._meta))
    return { text, value }
  const kept = [...members(text, meta.start)].filter(({ key }) => key !== SUBSCRIPTION_ID_KEY)
  const parts = kept.map(({ keyStart, end }) => text.slice(keyStart, end))
  const own = `${text.slice(0, meta.start)}{${parts.join()}}${text.slice(meta.end)}`
  return { text: own, value: parseExactly(own) as Message['value'] }
}
