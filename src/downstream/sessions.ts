import { randomUUID } from 'node:crypto'
import { inTurns, type Cancel, type Clock, type Millis } from '../mesh/clock.ts'
import { gatewayError, type GatewayError } from '../mesh/errors.ts'
import type { Live } from '../mesh/live.ts'
import type { GatewayGeneration } from '../registry/generation.ts'
import type { ListKind } from '../registry/kinds.ts'
import { kinds } from '../registry/kinds.ts'
import type { Guards } from './guards.ts'
import { notificationText } from '../protocol/jsonrpc.ts'
import { Session, type SessionParts } from './session.ts'
import type { UnreadReplies } from './unread-replies.ts'

export interface SessionLimits {
  /** Sessions open at once. */
  readonly max: number
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

/** All legacy-era sessions: bounded in number, swept when idle. */
export class Sessions {
  readonly limits: SessionLimits
  readonly #live: Live<GatewayGeneration>
  readonly #clock: Clock
  readonly #unread: UnreadReplies
  readonly #byId = new Map<string, Session>()
  /** Sessions that nobody finds yet: their `initialize` is under way. */
  readonly #drafts = new Set<Session>()
  /** Sessions that nobody finds any more and that end with their last call. */
  readonly #leaving = new Set<Session>()
  readonly #untold = new Set<string>()
  #cancelSweep: Cancel
  #cancelTell: Cancel | undefined

  constructor(
    live: Live<GatewayGeneration>,
    clock: Clock,
    limits: SessionLimits,
    { unread }: Pick<Guards, 'unread'>,
  ) {
    this.limits = limits
    this.#unread = unread
    this.#live = live
    this.#clock = clock
    this.#cancelSweep = this.#sweepLater()
  }

  get size(): number {
    return this.#byId.size
  }

  get full(): boolean {
    return this.#byId.size + this.#drafts.size >= this.limits.max
  }

  values(): IterableIterator<Session> {
    return this.#byId.values()
  }

  find(id: string): Session | undefined {
    return this.#byId.get(id)
  }

  /** A session that nobody can find yet: its `initialize` may still fail. Either `add` or `close` it. */
  draft(parts: Pick<SessionParts, 'front' | 'hello' | 'headers' | 'version'>): Session {
    const session = new Session({
      ...parts,
      id: randomUUID(),
      clock: this.#clock,
      unread: this.#unread,
      replay: { events: this.limits.replayEvents, bytes: this.limits.replayBytes },
      inbound: (server, message) => parts.front.inbound(this.#live.current, server, message),
    })
    this.#drafts.add(session)
    return session
  }

  add(session: Session): void {
    this.#drafts.delete(session)
    this.#byId.set(session.id, session)
  }

  /** Ends a session and its conversations with all servers; calls under way end with `error`. */
  async close(session: Session, error?: GatewayError): Promise<void> {
    this.#byId.delete(session.id)
    this.#drafts.delete(session)
    this.#leaving.delete(session)
    session.close(error)
    const servers = [...this.#live.current.servers.values()]
    await Promise.all(servers.map((server) => server.links.drop(session)))
  }

  async closeAll(): Promise<void> {
    this.#cancelSweep()
    this.#cancelTell?.()
    const error = gatewayError('shutting_down', 'the gateway is being stopped')
    await Promise.all([...this.#byId.values(), ...this.#leaving].map((session) => this.close(session, error)))
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
      void inTurns(this.#byId.values(), (session) => {
        if (session.idleMs > this.limits.idle) void this.close(session)
      })
      for (const session of this.#leaving) this.settle(session)
      this.#cancelSweep = this.#sweepLater()
    })
  }
}
