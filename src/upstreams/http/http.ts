import type { Signal } from '../../mesh/cancel.ts'
import type { Caller } from '../../mesh/call.ts'
import { nextTurn } from '../../mesh/clock.ts'
import { forwarded } from '../forwarded.ts'
import { HttpLink } from './http-link.ts'
import type { HttpOptions } from './http-options.ts'
import { isThere } from './http-post.ts'
import { HttpWire } from './http-wire.ts'
import { closePools, openPools, type Pools } from './http-pools.ts'
import type { Link, Upstream } from '../upstream.ts'

/** A server behind Streamable HTTP: a conversation per caller, over one pool of sockets per replica. */
export class HttpUpstream implements Upstream {
  readonly #options: HttpOptions
  readonly #pools: Pools
  readonly #links = new Set<Link>()
  /** Sessions that are being ended. */
  readonly #farewells = new Set<Promise<void>>()

  constructor(options: HttpOptions) {
    this.#options = options
    this.#pools = openPools(options)
  }

  async open(caller: Caller, signal: Signal): Promise<Link> {
    const { url, headers, forwardHeaders } = this.#options
    const agent = forwarded(forwardHeaders, caller.headers)
    const wire = HttpWire.to({ url, headers, agent }, this.#pools)
    const link = new HttpLink(this.#options, wire, caller, this.#seeOff)
    await link.initialize(signal)
    this.#links.add(link)
    link.ended.addEventListener('abort', () => this.#links.delete(link), { once: true })
    return link
  }

  probe(signal: Signal): Promise<boolean> {
    const { url, headers } = this.#options
    return isThere(HttpWire.to({ url, headers, agent: undefined }, this.#pools), signal)
  }

  async close(): Promise<void> {
    for (const link of this.#links) void link.close()
    // Handshakes that were given up just now say in this turn which sessions they leave.
    await nextTurn()
    await Promise.all(this.#farewells)
    await closePools(this.#pools)
  }

  readonly #seeOff = (farewell: Promise<void>): void => {
    this.#farewells.add(farewell)
    void farewell.finally(() => this.#farewells.delete(farewell))
  }
}
