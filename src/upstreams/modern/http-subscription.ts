import { gatewayError, type GatewayError } from '../../mesh/errors.ts'
import { readMessage } from '../../protocol/jsonrpc.ts'
import type { SseEvent } from '../../protocol/sse.ts'
import type { ReplyHeaders } from '../http/http-headers.ts'
import { HttpReply, type ReplyLimits, type ReplySink } from '../http/http-reply.ts'
import type { HttpWire } from '../http/http-wire.ts'
import { mirrorHeaders } from './modern-request.ts'
import type { Subscribe, Subscription } from './subscription.ts'

/** Subscribes over HTTP, where a dropped socket is all that the server needs to be told of the end. */
export function httpSubscribe(wire: HttpWire, limits: ReplyLimits): Subscribe {
  return (text, subscription) => {
    const reply = new HttpReply(new SubscriptionReply(subscription), limits)
    wire.subscribe(text, mirrorHeaders({ method: 'subscriptions/listen' }), reply)
    return () => reply.abort(gatewayError('cancelled', 'nobody listens any more'))
  }
}

/** The HTTP reply that a subscription comes by. */
class SubscriptionReply implements ReplySink {
  readonly #subscription: Subscription

  constructor(subscription: Subscription) {
    this.#subscription = subscription
  }

  opened(): undefined {}

  event({ data }: SseEvent): undefined {
    const message = readMessage(data)
    if (message !== undefined) this.#subscription.message(message)
  }

  body(status: number, _: ReplyHeaders, text: string): void {
    const message = status >= 500 || status === 429 ? undefined : readMessage(text)
    if (message !== undefined) this.#subscription.message(message)
    this.#subscription.broken(status >= 500 || status === 429)
  }

  ended(): void {
    this.#subscription.broken(true)
  }

  failed(error: GatewayError): void {
    this.#subscription.broken(error.reason !== 'cancelled')
  }
}
