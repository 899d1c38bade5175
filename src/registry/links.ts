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

/** Stands for "any replica" among the handshakes under way. */
const ANY = -1

/**
 * The conversations with one server: for each caller at most one per replica. Who names no replica gets the
 * conversation that was begun first, or a new one with the next replica that answers.
 */
export class Links {
  readonly #options: LinksOptions
  readonly #open = new Map<Caller, BoundLink[]>()
  readonly #opening = new Map<Caller, Map<number, Opening>>()
  #next = 0

  constructor(options: LinksOptions) {
    this.#options = options
  }

  /** How many callers have a conversation. */
  get size(): number {
    return this.#open.size
  }

  /** The caller's conversation with a replica, or with the first that it has one with. */
  current(caller: Caller, replica?: number): BoundLink | undefined {
    const bound = this.#open.get(caller)
    return replica === undefined ? bound?.[0] : bound?.find((one) => one.replica === replica)
  }

  /** All conversations of a caller. */
  all(caller: Caller): readonly Link[] {
    return this.#open.get(caller)?.map(({ link }) => link) ?? []
  }

  /** Whoever has a conversation. */
  callers(): IterableIterator<Caller> {
    return this.#open.keys()
  }

  /** The caller's conversation, begun if need be. Rejects with a `GatewayError`. */
  of(caller: Caller, replica?: number): Promise<BoundLink> {
    const current = this.current(caller, replica)
    if (current !== undefined) return Promise.resolve(current)
    if (replica === undefined) return this.#join(caller, ANY, (end) => this.#beginAnywhere(caller, end))
    return this.#join(caller, replica, (end) => this.#begin(caller, replica, end))
  }

  /** Ends a caller's conversations, and the handshakes for them, so that the next call begins a new one, perhaps elsewhere. */
  async drop(caller: Caller): Promise<void> {
    const opening = [...(this.#opening.get(caller)?.values() ?? [])]
    for (const { end } of opening)
      end.abort(gatewayError('cancelled', 'the conversation is not needed any more'))
    const begun = await Promise.all(opening.map(({ bound }) => bound.catch(() => undefined)))
    const ending = new Set([...(this.#open.get(caller) ?? []), ...begun.filter((one) => one !== undefined)])
    this.#open.delete(caller)
    await Promise.all([...ending].map(({ link }) => link.close()))
  }

  /** Ends one conversation of a caller; another one that took its place by now stays. */
  async dropLink(caller: Caller, link: Link): Promise<void> {
    const bound = this.#open.get(caller)?.find((one) => one.link === link)
    if (bound === undefined) return
    this.#forget(caller, bound)
    await link.close()
  }

  async closeAll(): Promise<void> {
    await Promise.all([...this.#open.keys(), ...this.#opening.keys()].map((caller) => this.drop(caller)))
  }

  /** Waits for what is under way, or begins it. */
  #join(caller: Caller, key: number, begin: (end: Signal) => Promise<BoundLink>): Promise<BoundLink> {
    const under = this.#opening.get(caller) ?? new Map<number, Opening>()
    this.#opening.set(caller, under)
    const joined = under.get(key)
    if (joined !== undefined) return joined.bound
    const end = new Cancellation()
    const bound = begin(end).finally(() => {
      under.delete(key)
      if (under.size === 0) this.#opening.delete(caller)
    })
    under.set(key, { end, bound })
    return bound
  }

  /** Tries all replicas in turn, each time from the next one on. */
  async #beginAnywhere(caller: Caller, end: Signal): Promise<BoundLink> {
    const { length } = this.#options.replicas
    let failure: GatewayError = gatewayError('upstream_unavailable', 'the server has no replica')
    for (let i = 0, first = this.#next++; i < length && !end.aborted; i++) {
      try {
        return await this.of(caller, (first + i) % length)
      } catch (error) {
        failure = error as GatewayError
      }
    }
    throw failure
  }

  async #begin(caller: Caller, replica: number, end: Signal): Promise<BoundLink> {
    const { replicas, clock, timeoutMs } = this.#options
    const limit = new Cancellation()
    end.addEventListener('abort', () => limit.abort(end.reason))
    const cancel = clock.after(timeoutMs, () => {
      limit.abort(gatewayError('attempt_timeout', `the handshake took longer than ${timeoutMs} ms`))
    })
    const upstream = replicas[replica] as Upstream
    return this.#keep(caller, { link: await upstream.open(caller, limit).finally(cancel), replica })
  }

  #keep(caller: Caller, bound: BoundLink): BoundLink {
    if (bound.link.ended.aborted) throw bound.link.ended.reason
    const current = this.#open.get(caller)
    if (current === undefined) this.#open.set(caller, [bound])
    else current.push(bound)
    if (caller.listening) bound.link.listen()
    bound.link.ended.addEventListener('abort', () => this.#forget(caller, bound), { once: true })
    return bound
  }

  #forget(caller: Caller, bound: BoundLink): void {
    const left = this.#open.get(caller)?.filter((one) => one !== bound) ?? []
    if (left.length > 0) this.#open.set(caller, left)
    else this.#open.delete(caller)
  }
}
