import { Pool } from 'undici'
import type { HttpServerConfig } from '../../config/schema/server-schema.ts'
import type { Caller } from '../../mesh/call.ts'
import type { Signal } from '../../mesh/cancel.ts'
import type { Clock } from '../../mesh/clock.ts'
import { gatewayError } from '../../mesh/errors.ts'
import type { Log } from '../../telemetry/log.ts'
import { orAborted, whenAborted } from '../failure.ts'
import { forwarded } from '../forwarded.ts'
import { HttpWire } from '../http/http-wire.ts'
import { readTls } from '../http/tls.ts'
import { MessageLink } from '../pipe/message-link.ts'
import type { Connect } from '../pipe/pipe.ts'
import { soloAudience } from '../shared/audience.ts'
import type { ServerReplies } from '../unfinished-replies.ts'
import type { Link, Upstream } from '../upstream.ts'
import { SsePipe } from './sse-pipe.ts'

interface SseOptions {
  /** The server's name in the registry. */
  readonly server: string
  readonly config: HttpServerConfig
  /** Where the event stream is. */
  readonly url: string
  /** Where counts what is kept of replies until they are complete; nowhere unless given. */
  readonly unfinished?: ServerReplies | undefined
  readonly clock: Clock
  readonly log: Log
}

/** A server behind HTTP+SSE, the transport of version 2024-11-05: a conversation per caller. */
export class SseUpstream implements Upstream {
  readonly #options: SseOptions
  readonly #log: Log
  readonly #posts: Pool
  readonly #streams: Pool
  readonly #links = new Set<MessageLink>()
  #closed = false

  constructor(options: SseOptions) {
    const { timeouts, tls, connections } = options.config
    const { origin } = new URL(options.url)
    const connect = { timeout: timeouts.connect, ...readTls(tls) }
    this.#options = options
    this.#log = options.log.child({ server: options.server })
    this.#posts = new Pool(origin, {
      connections,
      connect,
      headersTimeout: timeouts.idle,
      bodyTimeout: timeouts.idle,
    })
    this.#streams = new Pool(origin, { connect, headersTimeout: timeouts.idle, bodyTimeout: 0 })
  }

  async open(caller: Caller, signal: Signal): Promise<Link> {
    if (this.#closed) throw gatewayError('shutting_down', 'the server is being stopped')
    const { server, clock } = this.#options
    const terms = {
      server,
      hello: caller.hello,
      audience: soloAudience(server, caller),
      clock,
      log: this.#log,
    }
    const link = await MessageLink.open(this.#connectFor(caller), terms, signal)
    this.#links.add(link)
    whenAborted(link.ended, () => this.#links.delete(link))
    return link
  }

  async close(): Promise<void> {
    this.#closed = true
    await Promise.all([...this.#links].map((link) => link.close()))
    await Promise.all([this.#posts.destroy(), this.#streams.destroy()])
  }

  #connectFor(caller: Caller): Connect {
    const { url, clock, config, unfinished } = this.#options
    const wireTo = (endpoint: string) => this.#wireTo(endpoint, caller)
    return async (events, signal) => {
      const pipe = new SsePipe({
        wire: wireTo(url),
        wireTo,
        events,
        maxReply: config.maxReply,
        unfinished,
        clock,
      })
      try {
        await orAborted(pipe.ready, signal)
      } catch (error) {
        void pipe.close()
        throw error
      }
      return pipe
    }
  }

  /** Credentials go to the configured origin and nowhere else, whatever endpoint a server names. */
  #wireTo(endpoint: string, caller: Caller): HttpWire {
    const { url, config } = this.#options
    const target = URL.canParse(endpoint, url) ? new URL(endpoint, url) : undefined
    if (target?.origin !== new URL(url).origin) {
      throw gatewayError('upstream_refused', 'the server names an endpoint of another origin')
    }
    const { headers, forwardHeaders } = config
    const agent = forwarded(forwardHeaders, caller.headers)
    const wire = { url: target.href, headers, agent }
    return HttpWire.to(wire, { calls: this.#posts, streams: this.#streams })
  }
}
