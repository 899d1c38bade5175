import { randomUUID } from 'node:crypto'
import type { Cancel, Clock, Millis } from '../mesh/clock.ts'
import type { Live } from '../mesh/live.ts'
import type { GatewayGeneration } from '../registry/generation.ts'
import type { ListKind } from '../registry/kinds.ts'
import { kinds } from '../registry/kinds.ts'
import { notificationText } from '../protocol/jsonrpc.ts'
import { Session, type SessionParts } from './session.ts'

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
  readonly #byId = new Map<string, Session>()
  readonly #untold = new Set<string>()
  #cancelSweep: Cancel
  #cancelTell: Cancel | undefined

  constructor(live: Live<GatewayGeneration>, clock: Clock, limits: SessionLimits) {
    this.limits = limits
    this.#live = live
    this.#clock = clock
    this.#cancelSweep = this.#sweepLater()
  }

  get size(): number {
    return this.#byId.size
  }

  get full(): boolean {
    return this.#byId.size >= this.limits.max
  }

  values(): IterableIterator<Session> {
    return this.#byId.values()
  }

  find(id: string): Session | undefined {
    return this.#byId.get(id)
  }

  /** A session that nobody can find yet: its `initialize` may still fail. */
  draft(parts: Pick<SessionParts, 'front' | 'hello' | 'version'>): Session {
    return new Session({
      ...parts,
      id: randomUUID(),
      clock: this.#clock,
      replay: { events: this.limits.replayEvents, bytes: this.limits.replayBytes },
      inbound: (server, message) => parts.front.inbound(this.#live.current, server, message),
    })
  }

  add(session: Session): void {
    this.#byId.set(session.id, session)
  }

  /** Ends a session and its conversations with all servers. */
  async close(session: Session): Promise<void> {
    this.#byId.delete(session.id)
    session.close()
    const servers = [...this.#live.current.servers.values()]
    await Promise.all(servers.map((server) => server.links.drop(session)))
  }

  async closeAll(): Promise<void> {
    this.#cancelSweep()
    this.#cancelTell?.()
    await Promise.all([...this.#byId.values()].map((session) => this.close(session)))
  }

  /** Ends the sessions that look onto a server which is no more. */
  async closeOrphans(): Promise<void> {
    const { servers } = this.#live.current
    const orphans = [...this.values()].filter(({ front }) => front.server !== undefined && !servers.has(front.server))
    await Promise.all(orphans.map((session) => this.close(session)))
  }

  /** Tells all sessions on the aggregate that lists changed; a storm of changes is told once. */
  tellChanged(changed: readonly ListKind[]): void {
    for (const kind of changed) this.#untold.add(kinds[kind].changed)
    this.#cancelTell ??= this.#clock.after(TELL_MS, () => {
      const texts = [...this.#untold].map((method) => notificationText(method))
      this.#untold.clear()
      this.#cancelTell = undefined
      for (const session of this.#byId.values()) {
        if (session.front.server === undefined) texts.forEach((text) => session.tell(text))
      }
    })
  }

  #sweepLater(): Cancel {
    return this.#clock.after(SWEEP_MS, () => {
      for (const session of this.#byId.values()) {
        if (session.idleMs > this.limits.idle) void this.close(session)
      }
      this.#cancelSweep = this.#sweepLater()
    })
  }
}
