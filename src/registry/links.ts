import type { Caller } from '../mesh/call.ts'
import { Cancellation, type Signal } from '../mesh/cancel.ts'
import type { Clock, Millis } from '../mesh/clock.ts'
import { gatewayError, type GatewayError } from '../mesh/errors.ts'
import type { Link, Upstream } from '../upstreams/upstream.ts'

/** A caller's conversation, and the replica that it is held with. */
export interface BoundLink {
  readonly link: Link
  readonly replica: number
}

export interface LinksOptions {
  readonly replicas: readonly Upstream[]
  readonly clock: Clock
  /** How long a handshake may take. */
  readonly timeoutMs: Millis
}

/** A handshake under way. */
interface Opening {
  readonly bound: Promise<BoundLink>
  readonly end: Cancellation
}

/**
 * The conversations with one server, one per caller. A caller stays with its replica as long as that can
 * be reached: the session that was opened there is known nowhere else.
 */
export class Links {
  readonly #options: LinksOptions
  readonly #open = new Map<Caller, BoundLink>()
  readonly #opening = new Map<Caller, Opening>()
  #next = 0

  constructor(options: LinksOptions) {
    this.#options = options
  }

  get size(): number {
    return this.#open.size
  }

  current(caller: Caller): BoundLink | undefined {
    return this.#open.get(caller)
  }

  /** The caller's conversation, begun if need be. Rejects with a `GatewayError`. */
  async of(caller: Caller): Promise<BoundLink> {
    const current = this.#open.get(caller)
    if (current !== undefined) return current
    let opening = this.#opening.get(caller)
    if (opening === undefined) {
      const end = new Cancellation()
      opening = { end, bound: this.#begin(caller, end).finally(() => this.#opening.delete(caller)) }
      this.#opening.set(caller, opening)
    }
    return opening.bound
  }

  /** Ends a caller's conversation, or the handshake for it, so that the next call begins a new one, perhaps elsewhere. */
  async drop(caller: Caller): Promise<void> {
    const opening = this.#opening.get(caller)
    opening?.end.abort(gatewayError('cancelled', 'the conversation is not needed any more'))
    const bound = this.#open.get(caller) ?? (await opening?.bound.catch(() => undefined))
    this.#open.delete(caller)
    await bound?.link.close()
  }

  /** Ends one conversation of a caller; another one that took its place by now stays. */
  async dropLink(caller: Caller, link: Link): Promise<void> {
    if (this.#open.get(caller)?.link === link) await this.drop(caller)
  }

  async closeAll(): Promise<void> {
    await Promise.all([...this.#open.keys(), ...this.#opening.keys()].map((caller) => this.drop(caller)))
  }

  /** Tries the replicas in turn, each time from the next one on. */
  async #begin(caller: Caller, end: Signal): Promise<BoundLink> {
    const { replicas } = this.#options
    const first = this.#next++
    let failure: GatewayError = gatewayError('upstream_unavailable', 'the server has no replica')
    for (let i = 0; i < replicas.length; i++) {
      const replica = (first + i) % replicas.length
      try {
        const link = await this.#handshake(replicas[replica] as Upstream, caller, end)
        return this.#keep(caller, { link, replica })
      } catch (error) {
        failure = error as GatewayError
      }
      if (end.aborted) break
    }
    throw failure
  }

  async #handshake(upstream: Upstream, caller: Caller, end: Signal): Promise<Link> {
    const { clock, timeoutMs } = this.#options
    const limit = new Cancellation()
    end.addEventListener('abort', () => limit.abort(end.reason))
    const cancel = clock.after(timeoutMs, () => {
      limit.abort(gatewayError('attempt_timeout', `the handshake took longer than ${timeoutMs} ms`))
    })
    return upstream.open(caller, limit).finally(cancel)
  }

  #keep(caller: Caller, bound: BoundLink): BoundLink {
    if (bound.link.ended.aborted) throw bound.link.ended.reason
    this.#open.set(caller, bound)
    if (caller.listening) bound.link.listen()
    const forget = () => {
      if (this.#open.get(caller) === bound) this.#open.delete(caller)
    }
    bound.link.ended.addEventListener('abort', forget, { once: true })
    return bound
  }
}
