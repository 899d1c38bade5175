import type { Call, Outcome } from '../../mesh/call.ts'
import { gatewayError, type GatewayError } from '../../mesh/errors.ts'
import { paramsOf, readMessage } from '../../protocol/jsonrpc.ts'
import type { SseEvent } from '../../protocol/sse.ts'
import { HttpExchange } from '../http/http-exchange.ts'
import type { ReplyHeaders } from '../http/http-headers.ts'
import type { HttpOptions } from '../http/http-options.ts'
import { HttpReply, type ReplyLimits, type ReplySink } from '../http/http-reply.ts'
import type { HttpWire } from '../http/http-wire.ts'
import { NOTHING_POSTED, Unread } from '../unread.ts'
import type { ModernWay } from './modern-link.ts'
import { isModern, mirrorHeaders } from './modern-request.ts'
import type { Subscribe, Subscription } from './subscription.ts'
import type { TaskBinding } from './task-binding.ts'
import type { ToolFacts } from './tool-facts.ts'

/** How a server of the modern era is reached over HTTP. */
export interface ModernHttpOptions extends HttpOptions {
  /** The gateway's own `initialize` params, to ask the server in nobody's name what it is. */
  readonly hello: Readonly<Record<string, unknown>>
  /** What is known of the server's tools. */
  readonly tools: ToolFacts
  /** Whose the server's tasks are, over all its replicas. */
  readonly tasks: TaskBinding
}

/** Each request of the modern era as an HTTP request of its own. */
export function httpWay(wire: HttpWire, options: ModernHttpOptions): ModernWay {
  const { clock, maxReply, unfinished, onVersionError, timeouts, tools } = options
  const underWay = new Set<HttpExchange>()
  const ackMs = timeouts.discovery
  const unread = new Unread(NOTHING_POSTED)
  const limits = { maxReply, unfinished }
  const exchangeOptions = { clock, ...limits, ackMs, underWay, unread, stateless: true, onVersionError }
  return {
    send(call, text, id) {
      const { signal, channel, record } = call
      const request = { id, text, headers: headersOf(call, tools), signal, channel, record }
      // Without a session none can be lost.
      return HttpExchange.run(wire, request, exchangeOptions) as Promise<Outcome>
    },
    subscribe: httpSubscribe(wire, limits),
    abandon(error) {
      for (const exchange of underWay) exchange.abandon(error)
    },
  }
}

/** A request that speaks for itself came with all headers that it needs. */
function headersOf({ message: { value }, tool, headers }: Call, tools: ToolFacts): Record<string, string> {
  const mirrored =
    isModern(value) || tool === undefined ? undefined : tools.headers(tool, paramsOf(value).arguments)
  return { ...mirrorHeaders(value), ...mirrored, ...headers }
}

/** Subscribes over HTTP, where a dropped socket is all that the server needs to be told of the end. */
function httpSubscribe(wire: HttpWire, limits: ReplyLimits): Subscribe {
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
