import type { Call, Caller, Message, Outcome, Service } from '../../mesh/call.ts'
import type { Signal } from '../../mesh/cancel.ts'
import { gatewayError, type GatewayError } from '../../mesh/errors.ts'
import type { WireShape } from '../../mesh/wire-shape.ts'
import { paramsOf, readMessage, requestText } from '../../protocol/jsonrpc.ts'
import type { SseEvent } from '../../protocol/sse.ts'
import type { ModernUpstream } from '../era.ts'
import { abortError } from '../failure.ts'
import { forwarded } from '../forwarded.ts'
import { HttpExchange, UnderWay } from '../http/http-exchange.ts'
import type { ReplyHeaders } from '../http/http-status.ts'
import { closePools, type HttpOptions, openPools, type Pools } from '../http/http-pools.ts'
import { HttpReply, type ReplyLimits, type ReplySink } from '../http/http-reply.ts'
import { HttpWire } from '../http/http-wire.ts'
import { StandingStreams } from '../http/standing-stream.ts'
import { openError } from '../pipe/handshake.ts'
import { SessionStates } from '../shared/session-state.ts'
import { ownCall } from '../own-call.ts'
import { NOTHING_POSTED, Unread } from '../unread.ts'
import type { UpstreamSession } from '../upstream.ts'
import { Discover } from './discover.ts'
import { ModernSession, type ModernWay } from './modern-session.ts'
import type { Subscribe, Subscription } from './modern-listener.ts'
import { isModern, metaOf, mirrorHeaders, withMeta } from './modern-request.ts'
import type { ToolCallRules } from './tool-call-rules.ts'

/** A modern server behind Streamable HTTP: without sessions, each request is independent. */
export class ModernHttpUpstream implements ModernUpstream {
  readonly #options: ModernHttpOptions
  readonly #pools: Pools
  readonly #wire: HttpWire
  readonly #discover: Discover
  readonly #upstreamSessions = new Set<UpstreamSession>()
  readonly #states = new SessionStates()
  readonly #end = new AbortController()

  constructor(options: ModernHttpOptions) {
    this.#options = options
    this.#pools = openPools(options)
    const { url, headers } = options
    this.#wire = HttpWire.to({ url, headers, agent: undefined }, this.#pools)
    this.#discover = new Discover((signal) => this.#ask(signal), {
      clock: options.clock,
      conceal: (text) => this.#wire.concealing()(text),
      answerMs: options.timeouts.discovery,
    })
  }

  async open(caller: Caller, signal: Signal): Promise<UpstreamSession> {
    if (signal.aborted) throw openError(abortError(signal))
    if (this.#end.signal.aborted) throw gatewayError('shutting_down', 'the server is being stopped')
    const initializeResult = await this.#discover.initializeResult(signal).catch((cause: unknown) => {
      throw openError(cause)
    })
    const { server, clock, url, headers, forwardHeaders, tools, tasks } = this.#options
    const agent = forwarded(forwardHeaders, caller.headers)
    const wire = HttpWire.to({ url, headers, agent }, this.#pools)
    const way = httpWay(wire, this.#options, caller)
    const state = this.#states.of(caller)
    const terms = { server, clock, way, discover: this.#discover, tools, tasks, state }
    const upstreamSession = new ModernSession(terms, caller, initializeResult)
    this.#upstreamSessions.add(upstreamSession)
    upstreamSession.ended.addEventListener('abort', () => this.#upstreamSessions.delete(upstreamSession), {
      once: true,
    })
    return upstreamSession
  }

  forget(): void {
    this.#discover.forget()
  }

  async close(): Promise<void> {
    this.#end.abort()
    await Promise.all([...this.#upstreamSessions].map((upstreamSession) => upstreamSession.close()))
    await closePools(this.#pools)
  }

  async #ask(signal: Signal): Promise<Message> {
    const { clock, maxReply, unfinished, skipped, initializeParams, timeouts } = this.#options
    const method = 'server/discover'
    const id = `breakwater:${method}`
    const text = withMeta(requestText(id, method, {}), metaOf(initializeParams))
    const channel = { open: () => undefined, pause: () => undefined, send: () => undefined }
    const request = { id, text, headers: mirrorHeaders({ method }), signal, channel }
    const options = {
      clock,
      maxReply,
      unfinished,
      skipped,
      ackMs: timeouts.discovery,
      stateless: true,
      underWay: new UnderWay(),
      unread: new Unread(NOTHING_POSTED),
    }
    // Always an outcome: without a session, no session can be lost.
    const exchange: Service = (call) =>
      HttpExchange.run(this.#wire, { ...request, signal: call.signal }, options) as Promise<Outcome>
    const send = this.#options.faults?.(exchange) ?? exchange
    const outcome = await send(ownCall(this.#options.server, method, {}, signal))
    if (outcome.kind !== 'answered') throw outcome.error
    return outcome.result
  }
}

export interface ModernHttpOptions extends HttpOptions {
  /** The gateway's own `initialize` params, for asking the server about itself. */
  readonly initializeParams: Readonly<Record<string, unknown>>
  readonly tools: ToolCallRules
}

/** Sends each modern request as a separate HTTP request. */
function httpWay(wire: HttpWire, options: ModernHttpOptions, caller: Caller): ModernWay {
  const { clock, maxReply, unfinished, skipped, onVersionError, timeouts, tools, server, faults } = options
  const past = faults && new StandingStreams({ server, caller, faults })
  const underWay = new UnderWay()
  const ackMs = timeouts.discovery
  const unread = new Unread(NOTHING_POSTED)
  const limits = { maxReply, unfinished }
  const told = { skipped, onVersionError }
  const exchangeOptions = { clock, ...limits, ackMs, underWay, unread, stateless: true, ...told }
  return {
    send(call, text, id) {
      const { signal, channel, record, onSent } = call
      const headers = headersOf(call, tools)
      const request = { id, text, headers, signal, channel, wire: call.wire, record, onSent }
      // Always an outcome: without a session, no session can be lost.
      return HttpExchange.run(wire, request, exchangeOptions) as Promise<Outcome>
    },
    subscribe: httpSubscribe(wire, limits, past),
    abandon(error) {
      underWay.abandon(error)
    },
  }
}

/** Returns the headers of a call. A modern request already brings the headers that repeat its arguments. */
function headersOf(
  { message: { value }, tool, headers }: Call,
  tools: ToolCallRules,
): Record<string, string> {
  const mirrored =
    isModern(value) || tool === undefined ? undefined : tools.headers(tool, paramsOf(value).arguments)
  return { ...mirrorHeaders(value), ...mirrored, ...headers }
}

/** Subscribes over HTTP; dropping the socket is enough to tell the server of the end. */
function httpSubscribe(wire: HttpWire, limits: ReplyLimits, past: StandingStreams | undefined): Subscribe {
  return (text, subscription) => {
    let reply: HttpReply | undefined
    let isOver = false
    const open = (sink: ReplySink, shapes?: readonly WireShape[]) => {
      reply = new HttpReply(sink, limits)
      if (isOver) reply.abort(unwanted())
      wire.subscribe(text, mirrorHeaders({ method: 'subscriptions/listen' }), reply, shapes)
    }
    const sink = new SubscriptionReply(subscription)
    if (past === undefined) open(sink)
    else past.ask(sink, open)
    return () => {
      isOver = true
      reply?.abort(unwanted())
    }
  }
}

const unwanted = () => gatewayError('cancelled', 'nobody listens any more')

class SubscriptionReply implements ReplySink {
  readonly #subscription: Subscription

  constructor(subscription: Subscription) {
    this.#subscription = subscription
  }

  opened(): undefined {}

  event({ type, data }: SseEvent): undefined {
    const message = type === 'message' ? readMessage(data) : undefined
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
