import { randomUUID } from 'node:crypto'
import type { InboundHeaders } from '../mesh/call.ts'
import { inTurns, type Cancel, type Clock, type Millis } from '../mesh/clock.ts'
import { gatewayError, type GatewayError } from '../mesh/errors.ts'
import type { Live } from '../mesh/live.ts'
import type { GatewayGeneration } from '../registry/generation.ts'
import type { ListKind } from '../registry/kinds.ts'
import { kinds } from '../registry/kinds.ts'
import type { Guards } from './guards.ts'
import { notificationText } from '../protocol/jsonrpc.ts'
import { bearsCredentialsOf, principalOf, withoutAuthorization } from './credentials.ts'
import { greetingBytes, type Greetings } from './hello.ts'
import { halfOf, Quota } from './quotas.ts'
import type { ReplayBudget } from './replay.ts'
import { Session, type SessionParts } from './session.ts'
import type { UnreadReplies } from './unread-replies.ts'

export interface SessionLimits {
  /** Sessions open at once. */
  readonly max: number
  /** Of them for one client; half unless given. */
  readonly perClient?: number | undefined
  /** A session that had no request yet is closed after so long. */
  readonly unused: Millis
  /** A session unused for so long is closed. */
  readonly idle: Millis
  /** Calls under way at once in one session. */
  readonly maxInFlight: number
  readonly replayEvents: number
  readonly replayBytes: number
}

/** One timer for all sessions: an idle one lives at most this much longer than it should. */
const SWEEP_MS: Millis = 15_000

/** Changes of the catalogs within this time are told as one, in milliseconds. */
const TELL_MS: Millis = 100

/** What one client has, by whom its requests come for. */
interface ClientSessions {
  readonly sessions: Set<Session>
  readonly byPrincipal: Map<string, number>
}

/** All legacy-era sessions: bounded in number, of all clients and of each, and swept when idle. */
export class Sessions {
  readonly limits: SessionLimits
  readonly #live: Live<GatewayGeneration>
  readonly #clock: Clock
  readonly #unread: UnreadReplies
  readonly #replay: ReplayBudget
  readonly #byId = new Map<string, Session>()
  /** Sessions that nobody finds any more and that end with their last call. */
  readonly #leaving = new Set<Session>()
  /** All of them, drafts and leaving ones included, by client. */
  readonly #byClient = new Map<string, ClientSessions>()
  readonly #quota: Quota
  readonly #greetings: Greetings
  readonly #untold = new Set<string>()
  #cancelSweep: Cancel
  #cancelTell: Cancel | undefined

  constructor(
    live: Live<GatewayGeneration>,
    clock: Clock,
    limits: SessionLimits,
    { unread, replay, quotas, greetings }: Pick<Guards, 'unread' | 'replay' | 'quotas' | 'greetings'>,
  ) {
    const { max, perClient = halfOf(max) } = limits
    this.limits = limits
    this.#quota = new Quota('sessions', 'sessions', { max, perClient }, quotas.refused)
    this.#greetings = greetings
    this.#unread = unread
    this.#replay = replay
    this.#live = live
    this.#clock = clock
    this.#cancelSweep = this.#sweepLater()
  }

  get size(): number {
    return this.#byId.size
  }

  /**
   * Why a client may not begin one more session. Where there is no room, the session that was idle for the longest makes it:
   * that of the client with the most sessions, if it has more than this one, and of several who share an address that of
   * the one with the most. Whoever lost it is told to begin another one by the 404 of its next request; to turn away
   * all others for as long as somebody hoards sessions would be worse.
   */
  refusal(client: string, principal: string): GatewayError | undefined {
    const limit = this.#quota.exceeds(client)
    if (limit === undefined) return undefined
    const hoard = limit === 'max' ? this.#hoardOf(client) : this.#hoardWithin(client, principal)
    let idlest: Session | undefined
    for (const session of hoard) {
      if (session.idleMs > (idlest?.idleMs ?? 0) && this.#byId.has(session.id)) idlest = session
    }
    if (idlest === undefined) return this.#quota.refuse(limit)
    void this.close(idlest)
    return undefined
  }

  /** Why no more may be kept of what a client says of itself. */
  greetingRefusal(client: string, hello: SessionParts['hello'], headers: InboundHeaders) {
    return this.#greetings.refusal(client, greetingBytes(hello, headers))
  }

  /** The sessions of the client with the most, if it has more than this one would have. */
  #hoardOf(client: string): Iterable<Session> {
    let most: ClientSessions | undefined
    for (const each of this.#byClient.values())
      if (each.sessions.size > (most?.sessions.size ?? this.#quota.of(client) + 1)) most = each
    return most?.sessions ?? []
  }

  /** Those of the principal with the most among those at one address, if it has more than this one would have. */
  #hoardWithin(client: string, principal: string): Session[] {
    const own = this.#byClient.get(client)
    if (own === undefined) return []
    let most = (own.byPrincipal.get(principal) ?? 0) + 1
    let greediest: string | undefined
    for (const [name, count] of own.byPrincipal) if (count > most) [greediest, most] = [name, count]
    return greediest === undefined ? [] : [...own.sessions].filter((each) => each.principal === greediest)
  }

  values(): IterableIterator<Session> {
    return this.#byId.values()
  }

  find(id: string): Session | undefined {
    return this.#byId.get(id)
  }

  /** Whether a request bears the credentials that a session was opened with. */
  isOf(session: Session, headers: InboundHeaders): boolean {
    return bearsCredentialsOf(session, headers, this.#live.current.servers)
  }

  /** A session that nobody can find yet: its `initialize` may still fail. Either `add` or `close` it. */
  draft(parts: Pick<SessionParts, 'front' | 'hello' | 'headers' | 'version' | 'client'>): Session {
    const session = new Session({
      ...parts,
      headers: withoutAuthorization(parts.headers),
      principal: principalOf(parts.headers),
      id: randomUUID(),
      clock: this.#clock,
      unread: this.#unread,
      replayBudget: this.#replay,
      replay: { events: this.limits.replayEvents, bytes: this.limits.replayBytes },
      inbound: (server, message) => parts.front.inbound(this.#live.current, server, message),
    })
    this.#count(session)
    return session
  }

  #count(session: Session): void {
    const { client, principal } = session
    this.#greetings.take(session, client, greetingBytes(session.hello, session.headers))
    let own = this.#byClient.get(client)
    if (own === undefined) this.#byClient.set(client, (own = { sessions: new Set(), byPrincipal: new Map() }))
    own.sessions.add(session)
    own.byPrincipal.set(principal, (own.byPrincipal.get(principal) ?? 0) + 1)
    this.#quota.take(client)
  }

  #discount(session: Session): void {
    const { client, principal } = session
    const own = this.#byClient.get(client)
    if (own?.sessions.delete(session) !== true) return
    this.#greetings.release(session)
    const left = (own.byPrincipal.get(principal) ?? 1) - 1
    if (left > 0) own.byPrincipal.set(principal, left)
    else own.byPrincipal.delete(principal)
    if (own.sessions.size === 0) this.#byClient.delete(client)
    this.#quota.release(client)
  }

  /** Has a draft found from now on; false when it was closed meanwhile. */
  add(session: Session): boolean {
    if (this.#byClient.get(session.client)?.sessions.has(session) !== true) return false
    this.#byId.set(session.id, session)
    return true
  }

  /** Ends a session and its conversations with all servers; calls under way end with `error`. */
  async close(session: Session, error?: GatewayError): Promise<void> {
    this.#byId.delete(session.id)
    this.#leaving.delete(session)
    this.#discount(session)
    session.close(error)
    const servers = [...this.#live.current.servers.values()]
    await Promise.all(servers.map((server) => server.links.drop(session)))
  }

  /** Ends all sessions, also those whose `initialize` is under way. */
  async closeAll(): Promise<void> {
    this.#cancelSweep()
    this.#cancelTell?.()
    const error = gatewayError('shutting_down', 'the gateway is being stopped')
    const all = [...this.#byClient.values()].flatMap(({ sessions }) => [...sessions])
    await Promise.all(all.map((session) => this.close(session, error)))
  }

  /** Ends the sessions that look onto a server which is no more, each with its last call. */
  closeOrphans(): void {
    const { servers } = this.#live.current
    for (const session of this.#byId.values()) {
      if (session.front.server === undefined || servers.has(session.front.server)) continue
      this.#byId.delete(session.id)
      this.#leaving.add(session)
      this.settle(session)
    }
  }

  /** Some of a session's calls have ended: if it only waited for that, so does the session. */
  settle(session: Session): void {
    if (this.#leaving.has(session) && session.inFlight.size === 0) void this.close(session)
  }

  /** Tells all sessions on the aggregate that lists changed; a storm of changes is told once. */
  tellChanged(changed: readonly ListKind[]): void {
    for (const kind of changed) this.#untold.add(kinds[kind].changed)
    this.#cancelTell ??= this.#clock.after(TELL_MS, () => {
      const texts = [...this.#untold].map((method) => notificationText(method))
      this.#untold.clear()
      this.#cancelTell = undefined
      void inTurns(this.#byId.values(), (session) => {
        if (session.front.server === undefined) texts.forEach((text) => session.tell(text))
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
