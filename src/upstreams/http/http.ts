import type { Signal } from '../../mesh/cancel.ts'
import type { Caller } from '../../mesh/call.ts'
import type { Clock, Millis } from '../../mesh/clock.ts'
import { forwarded } from '../forwarded.ts'
import { HttpLink } from './http-link.ts'
import { HttpWire } from './http-wire.ts'
import { closePools, openPools, type Pools } from './http-pools.ts'
import type { TlsOptions } from './tls.ts'
import type { Link, Upstream } from '../upstream.ts'

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
  /** Told when the server does not speak the version of the protocol that it is spoken to in. */
  readonly onVersionError?: (() => void) | undefined
}

/** A server behind Streamable HTTP: a conversation per caller, over one pool of sockets per replica. */
export class HttpUpstream implements Upstream {
  readonly #options: HttpOptions
  readonly #pools: Pools
  readonly #links = new Set<Link>()

  constructor(options: HttpOptions) {
    this.#options = options
    this.#pools = openPools(options)
  }

  async open(caller: Caller, signal: Signal): Promise<Link> {
    const { url, headers, forwardHeaders } = this.#options
    const agent = forwarded(forwardHeaders, caller.headers)
    const wire = new HttpWire({ url, headers, agent }, this.#pools)
    const link = new HttpLink(this.#options, wire, caller)
    await link.initialize(signal)
    this.#links.add(link)
    link.ended.addEventListener('abort', () => this.#links.delete(link), { once: true })
    return link
  }

  async close(): Promise<void> {
    await Promise.all([...this.#links].map((link) => link.close()))
    await closePools(this.#pools)
  }
}
