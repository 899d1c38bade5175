import type { Caller, Message, Outcome } from '../../mesh/call.ts'
import type { Signal } from '../../mesh/cancel.ts'
import { gatewayError } from '../../mesh/errors.ts'
import { requestText } from '../../protocol/jsonrpc.ts'
import type { ModernUpstream } from '../era.ts'
import { abortError } from '../failure.ts'
import { forwarded } from '../forwarded.ts'
import { HttpExchange } from '../http/http-exchange.ts'
import { closePools, openPools, type Pools } from '../http/http-pools.ts'
import { HttpWire } from '../http/http-wire.ts'
import { openError } from '../pipe/handshake.ts'
import { NOTHING_POSTED, Unread } from '../unread.ts'
import type { Link } from '../upstream.ts'
import { Discover } from './discover.ts'
import { httpWay, type ModernHttpOptions } from './modern-http-way.ts'
import { ModernLink } from './modern-link.ts'
import { metaOf, mirrorHeaders, withMeta } from './modern-request.ts'

/** A server of the modern era behind Streamable HTTP: no sessions, each request stands for itself. */
export class ModernHttpUpstream implements ModernUpstream {
  readonly #options: ModernHttpOptions
  readonly #pools: Pools
  readonly #wire: HttpWire
  readonly #discover: Discover
  readonly #links = new Set<Link>()
  readonly #end = new AbortController()

  constructor(options: ModernHttpOptions) {
    this.#options = options
    this.#pools = openPools(options)
    const { url, headers } = options
    this.#wire = HttpWire.to({ url, headers, agent: undefined }, this.#pools)
    this.#discover = new Discover((signal) => this.#ask(signal), {
      clock: options.clock,
      answerMs: options.timeouts.discovery,
    })
  }

  async open(caller: Caller, signal: Signal): Promise<Link> {
    if (signal.aborted) throw openError(abortError(signal))
    if (this.#end.signal.aborted) throw gatewayError('shutting_down', 'the server is being stopped')
    const greeting = await this.#discover.greeting(signal).catch((cause: unknown) => {
      throw openError(cause)
    })
    const { server, clock, url, headers, forwardHeaders, tools, tasks } = this.#options
    const agent = forwarded(forwardHeaders, caller.headers)
    const wire = HttpWire.to({ url, headers, agent }, this.#pools)
    const way = httpWay(wire, this.#options)
    const terms = { server, clock, way, discover: this.#discover, tools, tasks }
    const link = new ModernLink(terms, caller, greeting)
    this.#links.add(link)
    link.ended.addEventListener('abort', () => this.#links.delete(link), { once: true })
    return link
  }

  forget(): void {
    this.#discover.forget()
  }

  async close(): Promise<void> {
    this.#end.abort()
    await Promise.all([...this.#links].map((link) => link.close()))
    await closePools(this.#pools)
  }

  async #ask(signal: Signal): Promise<Message> {
    const { clock, maxReply, unfinished, hello, timeouts } = this.#options
    const method = 'server/discover'
    const id = `breakwater:${method}`
    const text = withMeta(requestText(id, method, {}), metaOf(hello))
    const channel = { open: () => undefined, pause: () => undefined, send: () => undefined }
    const request = { id, text, headers: mirrorHeaders({ method }), signal, channel }
    const options = {
      clock,
      maxReply,
      unfinished,
      ackMs: timeouts.discovery,
      stateless: true,
      underWay: new Set<HttpExchange>(),
      unread: new Unread(NOTHING_POSTED),
    }
    const reading = await HttpExchange.run(this.#wire, request, options)
    // Without a session none can be lost.
    const outcome = reading as Outcome
    if (outcome.kind !== 'answered') throw outcome.error
    return outcome.result
  }
}
