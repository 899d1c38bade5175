import type { Signal } from '../mesh/cancel.ts'
import { Pool } from 'undici'
import type { Caller } from '../mesh/call.ts'
import type { Clock, Millis } from '../mesh/clock.ts'
import { forwarded } from './forwarded.ts'
import { HttpLink } from './http-link.ts'
import { HttpWire } from './http-wire.ts'
import { readTls, type TlsOptions } from './tls.ts'
import type { Link, Upstream } from './upstream.ts'

export interface HttpOptions {
  /** The server's name in the registry. */
  readonly server: string
  /** The endpoint, path included. */
  readonly url: string
  /** Sent with every request. */
  readonly headers: Readonly<Record<string, string>>
  /** Headers of the agent that are passed on, old names to new ones. */
  readonly forwardHeaders: Readonly<Record<string, string>>
  /** Sockets for calls; streams that stay open have sockets of their own and take none of these. */
  readonly connections: number
  readonly timeouts: { readonly connect: Millis; readonly idle: Millis }
  /** Largest message of the server, in bytes. */
  readonly maxReply: number
  /** What follows when the server forgot a session: a new one, or an error. */
  readonly sessionRecovery: 'transparent' | 'surface'
  readonly tls?: TlsOptions | undefined
  readonly clock: Clock
}

/** A server behind Streamable HTTP: a conversation per caller, over one pool of sockets per replica. */
export class HttpUpstream implements Upstream {
  readonly #options: HttpOptions
  readonly #calls: Pool
  readonly #streams: Pool
  readonly #links = new Set<Link>()

  constructor(options: HttpOptions) {
    const { url, connections, timeouts, tls } = options
    const connect = { timeout: timeouts.connect, ...readTls(tls) }
    const { origin } = new URL(url)
    this.#options = options
    this.#calls = new Pool(origin, {
      connections,
      pipelining: 1,
      headersTimeout: timeouts.idle,
      bodyTimeout: timeouts.idle,
      connect,
    })
    this.#streams = new Pool(origin, { pipelining: 1, headersTimeout: timeouts.idle, bodyTimeout: 0, connect })
  }

  async open(caller: Caller, signal: Signal): Promise<Link> {
    const { url, headers, forwardHeaders } = this.#options
    const agent = forwarded(forwardHeaders, caller.headers)
    const wire = new HttpWire({ url, headers, agent }, this.#calls, this.#streams)
    const link = new HttpLink(this.#options, wire, caller)
    await link.initialize(signal)
    this.#links.add(link)
    link.ended.addEventListener('abort', () => this.#links.delete(link), { once: true })
    return link
  }

  async close(): Promise<void> {
    await Promise.all([...this.#links].map((link) => link.close()))
    await Promise.all([this.#calls.destroy(), this.#streams.destroy()])
  }
}
