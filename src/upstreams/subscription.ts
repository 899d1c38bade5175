import type { Message } from '../mesh/call.ts'
import { gatewayError, type GatewayError } from '../mesh/errors.ts'
import {
  INVALID_PARAMS,
  isObject,
  kindOf,
  METHOD_NOT_FOUND,
  paramsOf,
  readMessage,
} from '../protocol/jsonrpc.ts'
import { locate, members } from '../protocol/json-span.ts'
import { SUBSCRIPTION_ID_KEY } from '../protocol/modern.ts'
import type { SseEvent } from '../protocol/sse.ts'
import type { ReplyHeaders } from './http-headers.ts'
import { HttpReply, type ReplySink } from './http-reply.ts'

export interface SubscriptionEvents {
  /** The server listens to us listening. */
  acknowledged(): void
  /** A notification, as if there were no subscription. */
  message(message: Message): void
  /** Nothing comes any more; `again`: it makes sense to ask anew. */
  over(again: boolean): void
}

/** One `subscriptions/listen` and the stream of notifications that answers it. */
export class Subscription implements ReplySink {
  /** undici's end of it. */
  readonly reply: HttpReply
  readonly #events: SubscriptionEvents
  #over = false
  #honoured = true

  constructor(maxReply: number, events: SubscriptionEvents) {
    this.#events = events
    this.reply = new HttpReply(this, maxReply)
  }

  /** Drops the socket, which is all that the server needs to be told. */
  close(): void {
    this.#over = true
    this.reply.abort(gatewayError('cancelled', 'nobody listens any more'))
  }

  opened(): undefined {}

  event({ data }: SseEvent): undefined {
    const message = this.#over ? undefined : readMessage(data)
    if (message === undefined) return
    const kind = kindOf(message.value)
    if (kind === 'notification') this.#notified(message)
    else if (kind === 'response') this.#end(message.value)
  }

  body(status: number, _: ReplyHeaders, text: string): void {
    const value = readMessage(text)?.value
    if (status >= 500 || status === 429) this.#finish(true)
    else if (value === undefined) this.#finish(false)
    else this.#end(value)
  }

  ended(): void {
    this.#finish(true)
  }

  failed(error: GatewayError): void {
    this.#finish(error.reason !== 'cancelled')
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
    this.#finish(this.#honoured && !refused)
  }

  #finish(again: boolean): void {
    if (this.#over) return
    this.close()
    this.#events.over(again)
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
  return { text: own, value: JSON.parse(own) as Message['value'] }
}
