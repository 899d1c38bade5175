import type { Caller } from '../mesh/call.ts'
import { Cancellation, type Signal } from '../mesh/cancel.ts'
import type { Clock, Millis } from '../mesh/clock.ts'
import { gatewayError, type GatewayError } from '../mesh/errors.ts'
import { isDeeperThan } from '../protocol/json-scan.ts'
import { ownEra } from '../upstreams/era-verdicts.ts'
import { abortError, orAborted } from '../upstreams/failure.ts'
import { PATIENCE_MS, SharedAttempts } from '../upstreams/shared-attempts.ts'
import type { Link, Upstream } from '../upstreams/upstream.ts'

/** A caller's conversation, and the replica that it is held with. */
export interface BoundLink {
  readonly link: Link
  readonly replica: number
  /** Whether the replica kept something of the caller when the conversation began. */
  readonly keepsState: boolean
  /** Calls under way over it. */
  calls: number
  /** Whether it is closed when the last of them has ended, and takes no new ones. */
  retired: boolean
}

export interface LinksOptions {
  readonly replicas: readonly Upstream[]
  readonly clock: Clock
  /** How long a handshake may take. */
  readonly timeoutMs: Millis
}

/** Deepest nesting of what a server says of itself: it is put together with that of others, and shown to operators. */
const MAX_GREETING_DEPTH = 64

/** Stands for "any replica" among the handshakes under way. */
const ANY = -1

/**
 * The conversations with one server: for each caller at most one per replica. Who names no replica gets the
 * conversation that was begun first, or a new one with the next replica that answers.
 */
export class Links {
  readonly #options: LinksOptions
  readonly #open = new Map<Caller, BoundLink[]>()
  /** Handshakes under way, by the replica that they are for. */
  readonly #opening = new Map<Caller, Map<number, SharedAttempts<BoundLink>>>()
  /** How many callers are at home at each replica. One that has conversations with several is so where its first is. */
  readonly #atHome: number[]
  /** Whether the server was found to keep something of callers that speak an era themselves. */
  readonly #keepsState = { legacy: false, modern: false }
  #next = 0

  constructor(options: LinksOptions) {
    this.#options = options
    this.#atHome = options.replicas.map(() => 0)
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
    const only = this.#options.replicas.length === 1 ? 0 : undefined
    const at = replica ?? only
    if (at === undefined) return this.#join(caller, ANY, (end) => this.#beginAnywhere(caller, end), Infinity)
    return this.#join(caller, at, (end) => this.#begin(caller, at, end))
  }

  /** Ends a caller's conversations, and the handshakes for them, so that the next call begins a new one, perhaps elsewhere. */
  async drop(caller: Caller): Promise<void> {
    const unwanted = gatewayError('cancelled', 'the conversation is not needed any more')
    for (const attempts of [...(this.#opening.get(caller)?.values() ?? [])]) attempts.abort(unwanted)
    const ending = this.#open.get(caller) ?? []
    this.#set(caller, [])
    await Promise.all(ending.map(({ link }) => link.close()))
  }

  /**
   * The replica that a caller's calls have to go to, because it may remember something of the caller, or will when the
   * handshake that is under way is done; undefined: any will do.
   */
  home(caller: Caller): number | undefined {
    const bound = this.#open.get(caller)
    // Replicas of one server need not speak the same eras.
    if (bound !== undefined) return bound.find(({ link }) => link.keepsState)?.replica
    if (!this.#isKept(caller)) return undefined
    for (const replica of this.#opening.get(caller)?.keys() ?? []) if (replica !== ANY) return replica
    return undefined
  }

  /** How many callers are at home at each replica; undefined when the server keeps nothing of such a caller. */
  homes(caller: Caller): readonly number[] | undefined {
    return this.#isKept(caller) ? this.#atHome : undefined
  }

  /** Takes a conversation from its caller, whose next call begins a new one; calls that are under way over it end in order. */
  retire(caller: Caller, bound: BoundLink): void {
    this.#forget(caller, bound)
    if (bound.retired) return
    bound.retired = true
    if (bound.calls === 0) void bound.link.close()
  }

  /** A call that went over a conversation has ended. */
  left(bound: BoundLink): void {
    if (--bound.calls === 0 && bound.retired) void bound.link.close()
  }

  /** Takes a caller's conversation with a replica from it, as `retire` does. */
  leave(caller: Caller, replica: number): void {
    const bound = this.current(caller, replica)
    if (bound !== undefined) this.retire(caller, bound)
  }

  async closeAll(): Promise<void> {
    await Promise.all([...this.#open.keys(), ...this.#opening.keys()].map((caller) => this.drop(caller)))
  }

  /** Waits for what is under way, or begins it. */
  #join(
    caller: Caller,
    key: number,
    begin: (end: Signal) => Promise<BoundLink>,
    patienceMs = this.#patienceFor(key),
  ): Promise<BoundLink> {
    const under = this.#opening.get(caller) ?? new Map<number, SharedAttempts<BoundLink>>()
    this.#opening.set(caller, under)
    const attempts = under.get(key) ?? new SharedAttempts(this.#options.clock, begin, patienceMs)
    under.set(key, attempts)
    const over = () => {
      if (attempts.underWay) return
      under.delete(key)
      if (under.size === 0) this.#opening.delete(caller)
    }
    const outcome = attempts.join()
    outcome.then(over, over)
    return outcome
  }

  /** A second handshake costs a server that is reached over a network little; a process would be started twice. */
  #patienceFor(replica: number): Millis {
    return this.#options.replicas[replica]?.probe === undefined ? Infinity : PATIENCE_MS
  }

  /** Tries all replicas in turn, each time from the next one on; each gets an equal part of the time that is left. */
  async #beginAnywhere(caller: Caller, end: Signal): Promise<BoundLink> {
    const { replicas, clock, timeoutMs } = this.#options
    const { length } = replicas
    const until = clock.now() + timeoutMs
    let failure: GatewayError = gatewayError('upstream_unavailable', 'the server has no replica')
    for (let i = 0, first = this.#next++; i < length && !end.aborted; i++) {
      const replica = (first + i) % length
      const shareMs = Math.max(1, (until - clock.now()) / (length - i))
      try {
        return (
          this.current(caller, replica) ??
          (await this.#join(caller, replica, (ended) => this.#begin(caller, replica, ended, shareMs)))
        )
      } catch (error) {
        failure = error as GatewayError
      }
    }
    throw failure
  }

  async #begin(
    caller: Caller,
    replica: number,
    end: Signal,
    limitMs = this.#options.timeoutMs,
  ): Promise<BoundLink> {
    const { replicas, clock } = this.#options
    const limit = new Cancellation()
    end.addEventListener('abort', () => limit.abort(end.reason))
    const cancel = clock.after(limitMs, () => {
      limit.abort(gatewayError('attempt_timeout', `the handshake took longer than ${Math.round(limitMs)} ms`))
    })
    const opening = (replicas[replica] as Upstream).open(caller, limit)
    try {
      const link = await orAborted(opening, limit)
      if (limit.aborted) throw abortError(limit)
      if (isDeeperThan(MAX_GREETING_DEPTH, link.greeting.text)) {
        void link.close()
        const what = `what the server says of itself is nested deeper than ${MAX_GREETING_DEPTH}`
        throw gatewayError('bad_reply', what)
      }
      const { keepsState } = link
      return this.#keep(caller, { link, replica, keepsState, calls: 0, retired: false })
    } catch (error) {
      // One that comes too late is nobody's.
      if (limit.aborted) opening.then((link) => link.close(), ignore)
      throw error
    } finally {
      cancel()
    }
  }

  #keep(caller: Caller, bound: BoundLink): BoundLink {
    const { link, replica } = bound
    if (link.ended.aborted) throw link.ended.reason
    const other = this.current(caller, replica)
    if (other !== undefined) {
      // Another attempt was faster.
      void link.close()
      return other
    }
    this.#set(caller, [...(this.#open.get(caller) ?? []), bound])
    if (link.keepsState) this.#keepsState[ownEra(caller)] = true
    if (caller.listening) link.listen()
    link.ended.addEventListener('abort', () => this.#forget(caller, bound), { once: true })
    return bound
  }

  /** A server that keeps something of modern callers speaks the legacy era with everybody. */
  #isKept(caller: Caller): boolean {
    return this.#keepsState.modern || this.#keepsState[ownEra(caller)]
  }

  #forget(caller: Caller, bound: BoundLink): void {
    const open = this.#open.get(caller)
    if (open?.includes(bound) === true)
      this.#set(
        caller,
        open.filter((one) => one !== bound),
      )
  }

  /** Notes the conversations of a caller, and with them where it is at home. */
  #set(caller: Caller, bound: BoundLink[]): void {
    this.#count(this.#open.get(caller)?.[0], -1)
    this.#count(bound[0], 1)
    if (bound.length > 0) this.#open.set(caller, bound)
    else this.#open.delete(caller)
  }

  #count(home: BoundLink | undefined, by: number): void {
    if (home?.keepsState === true) this.#atHome[home.replica] = (this.#atHome[home.replica] ?? 0) + by
  }
}

function ignore(): void {}
