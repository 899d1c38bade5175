import { randomUUID } from 'node:crypto'
import type { InboundHeaders } from '../../mesh/call.ts'
import { inTurns, type Cancel, type Clock, type Millis } from '../../mesh/clock.ts'
import { gatewayError, type GatewayError } from '../../mesh/errors.ts'
import type { Live } from '../../mesh/live.ts'
import type { GatewayGeneration } from '../../registry/generation.ts'
import type { ListKind } from '../../protocol/lists.ts'
import { kinds } from '../../protocol/lists.ts'
import type { Guards } from '../limits/limits.ts'
import { notificationText } from '../../protocol/jsonrpc.ts'
import { bearsCredentialsOf, principalOf, withoutAuthorization } from '../../access/caller.ts'
import { initializeBytes } from '../initialize.ts'
import type { KeepAlive } from '../keep-alive.ts'
import type { EvictingQuota, Holding } from '../limits/quotas.ts'
import type { ReplayBudget } from '../http/event-stream.ts'
import { Session, type SessionParts } from './session.ts'
import type { UnreadReplies } from '../http/unread-replies.ts'

export interface SessionLimits {
  /** How long a session may live without any request after `initialize`, in milliseconds. */
  readonly unused: Millis
  /** How long a session may be idle, in milliseconds. */
  readonly idle: Millis
  /** Most calls in progress in one session. */
  readonly maxInFlight: number
}

/** Interval between searches for idle sessions, in milliseconds. An idle session lives at most this much too long. */
const SWEEP_MS: Millis = 15_000

/** Most sessions examined to make room for a new session. */
const MOST_LOOKS = 1_000

/** Time in which list changes are collected before one announcement, in milliseconds. */
const TELL_MS: Millis = 100

/** All sessions of the legacy era. Limits their number, in total and for each client, and ends idle sessions. */
export class Sessions {
  readonly limits: SessionLimits
  readonly #live: Live<GatewayGeneration>
  readonly #clock: Clock
  readonly #unread: UnreadReplies
  readonly #keepAlive: KeepAlive
  readonly #replay: ReplayBudget
  readonly #byId = new Map<string, Session>()
  /** Sessions whose server was removed; each ends with its last call. */
  readonly #leaving = new Set<Session>()
  /** All sessions with their quota holdings, including drafts and sessions of removed servers. */
  readonly #all = new Map<Session, Holding>()
  readonly #quota: EvictingQuota
  readonly #quotas: Guards['quotas']
  readonly #initializeParamsQuota: EvictingQuota
  /**
   * Sessions without a request since their `initialize`, the oldest first. Sessions in use are removed at the next
   * search.
   */
  readonly #unused = new Set<Session>()
  readonly #untold = new Set<string>()
  readonly #onEnd: (session: Session, error: GatewayError | undefined) => void
  #cancelSweep: Cancel
  #cancelTell: Cancel | undefined

  /** Calls `onEnd` for each ended session except drafts, with the error that ended its calls. */
  constructor(
    live: Live<GatewayGeneration>,
    clock: Clock,
    limits: SessionLimits,
    { unread, keepAlive, replay, quotas }: Pick<Guards, 'unread' | 'keepAlive' | 'replay' | 'quotas'>,
    onEnd: (session: Session, error: GatewayError | undefined) => void = () => undefined,
  ) {
    this.limits = limits
    this.#onEnd = onEnd
    this.#quota = quotas.sessions
    this.#quotas = quotas
    this.#initializeParamsQuota = quotas.initializeParams
    this.#unread = unread
    this.#keepAlive = keepAlive
    this.#replay = replay
    this.#live = live
    this.#clock = clock
    this.#cancelSweep = this.#sweepLater()
  }

  get size(): number {
    return this.#byId.size
  }

  /** Ends idle sessions of other clients to make room for a new session. Returns an error when there is no room. */
  refusal(client: string, principal: string): GatewayError | undefined {
    return this.#quota.makeRoom(client, principal, 1, (limit) => {
      const spare = this.#unusedFor(client, principal, limit)
      return spare && this.#all.get(spare)
    })
  }

  /**
   * Returns the session to end so that a new session need not be refused; undefined without a candidate. Candidates had
   * no request yet and have no open stream. Returns the oldest of the same principal, else of the same client, else of
   * any client.
   */
  #unusedFor(client: string, principal: string, limit: 'max' | 'perClient'): Session | undefined {
    let found: Session | undefined
    let nearest = 0
    let looks = MOST_LOOKS
    for (const session of this.#unused) {
      if (looks-- === 0) break
      if (session.used) {
        this.#unused.delete(session)
        continue
      }
      const near = session.client !== client ? 1 : session.principal !== principal ? 2 : 3
      if (near > nearest && (near > 1 || limit === 'max') && session.idleMs > 0)
        [found, nearest] = [session, near]
    }
    return found
  }

  /**
   * Ends idle sessions of other clients to make room for a client's description. Returns an error when there is no
   * room.
   */
  initializeRefusal(
    client: string,
    principal: string,
    initializeParams: SessionParts['initializeParams'],
    headers: InboundHeaders,
  ): GatewayError | undefined {
    return this.#initializeParamsQuota.makeRoom(client, principal, initializeBytes(initializeParams, headers))
  }

  values(): IterableIterator<Session> {
    return this.#byId.values()
  }

  find(id: string): Session | undefined {
    return this.#byId.get(id)
  }

  /** True when a request has the credentials that opened a session. */
  isOf(session: Session, headers: InboundHeaders): boolean {
    return bearsCredentialsOf(session, headers, this.#live.current.servers)
  }

  /**
   * Creates a draft: a session that `find` does not return yet, because `initialize` may still fail. Call `add` or
   * `close` afterwards.
   */
  draft(
    parts: Pick<SessionParts, 'endpoint' | 'initializeParams' | 'headers' | 'version' | 'client'>,
  ): Session {
    const session = new Session({
      ...parts,
      headers: withoutAuthorization(parts.headers),
      principal: principalOf(parts.headers),
      id: randomUUID(),
      clock: this.#clock,
      unread: this.#unread,
      keepAlive: this.#keepAlive,
      replayBudget: this.#replay,
      quotas: this.#quotas,
      inbound: (server, message) => parts.endpoint.inbound(this.#live.current, server, message),
      outbound: (server, message) => parts.endpoint.outbound(this.#live.current, server, message),
    })
    this.#count(session)
    return session
  }

  #count(session: Session): void {
    const { client, principal, id } = session
    const byId = this.#byId
    const holding: Holding = {
      client,
      principal,
      // Drafts and sessions of removed servers are never idle: a draft is in use, and the others end anyway.
      get idleMs() {
        return byId.has(id) ? session.idleMs : 0
      },
      end: () => void this.close(session),
    }
    this.#all.set(session, holding)
    this.#quota.hold(holding)
    this.#initializeParamsQuota.hold(holding, initializeBytes(session.initializeParams, session.headers))
  }

  #discount(session: Session): void {
    const holding = this.#all.get(session)
    if (holding === undefined) return
    this.#all.delete(session)
    this.#quota.drop(holding)
    this.#initializeParamsQuota.drop(holding)
  }

  /** Makes a draft a full session, which `find` returns. Returns false when the draft was closed meanwhile. */
  add(session: Session): boolean {
    if (!this.#all.has(session)) return false
    this.#byId.set(session.id, session)
    this.#unused.add(session)
    return true
  }

  /** Ends a session and its upstream sessions with all servers; calls in progress end with `error`. */
  async close(session: Session, error?: GatewayError): Promise<void> {
    if (this.#byId.delete(session.id)) this.#onEnd(session, error)
    this.#unused.delete(session)
    this.#leaving.delete(session)
    this.#discount(session)
    session.close(error)
    const servers = [...this.#live.current.servers.values()]
    // Without `error`, a call that other callers have joined continues over the upstream session. With `error`, it ends
    // at once.
    await Promise.all(
      servers.map(({ upstreamSessions }) =>
        error === undefined ? upstreamSessions.end(session) : upstreamSessions.drop(session),
      ),
    )
  }

  /** Ends all sessions, also drafts in their `initialize`. */
  async closeAll(): Promise<void> {
    this.#cancelSweep()
    this.#cancelTell?.()
    const error = gatewayError('shutting_down', 'the gateway is being stopped')
    await Promise.all([...this.#all.keys()].map((session) => this.close(session, error)))
  }

  /** Ends the sessions of removed servers, each with its last call. Until then the client may answer questions. */
  closeOrphans(): void {
    const { servers } = this.#live.current
    for (const session of this.#byId.values()) {
      const { server } = session.endpoint
      if (server === undefined || servers.has(server)) this.#leaving.delete(session)
      else {
        this.#leaving.add(session)
        this.settle(session)
      }
    }
  }

  /**
   * Ends a session of a removed server after its last call. Callers call this whenever calls of a session have ended.
   */
  settle(session: Session): void {
    if (this.#leaving.has(session) && session.inFlight.size === 0) void this.close(session)
  }

  /**
   * Tells all sessions of the endpoint for all servers that lists changed. Announces changes within `TELL_MS` together.
   */
  tellChanged(changed: readonly ListKind[]): void {
    for (const kind of changed) this.#untold.add(kinds[kind].changed)
    this.#cancelTell ??= this.#clock.after(TELL_MS, () => {
      const texts = [...this.#untold].map((method) => notificationText(method))
      this.#untold.clear()
      this.#cancelTell = undefined
      void inTurns(this.#byId.values(), (session) => {
        if (session.endpoint.server === undefined) texts.forEach((text) => session.tell(text))
      })
    })
  }

  #sweepLater(): Cancel {
    return this.#clock.after(SWEEP_MS, () => {
      const { idle, unused } = this.limits
      void inTurns(this.#byId.values(), (session) => {
        if (session.idleMs > (session.used ? idle : Math.min(idle, unused))) void this.close(session)
      })
      for (const session of this.#leaving) this.settle(session)
      this.#cancelSweep = this.#sweepLater()
    })
  }
}
