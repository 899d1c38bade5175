import type { Call, Outcome } from '../../mesh/call.ts'
import { paramsOf } from '../../protocol/jsonrpc.ts'
import { HttpExchange } from '../http/http-exchange.ts'
import { httpSubscribe } from './http-subscription.ts'
import type { HttpWire } from '../http/http-wire.ts'
import type { ModernHttpOptions } from './modern-http.ts'
import type { ModernWay } from './modern-link.ts'
import { isModern, mirrorHeaders } from './modern-request.ts'
import type { ToolFacts } from './tool-facts.ts'
import { NOTHING_POSTED, Unread } from '../unread.ts'

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
