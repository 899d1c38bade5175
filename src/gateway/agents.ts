import type { IncomingHttpHeaders } from 'node:http'
import type { Guards } from '../downstream/limits/limits.ts'
import { LegacyHandler } from '../downstream/legacy/handler.ts'
import { ModernHandler } from '../downstream/modern/handler.ts'
import { type SessionLimits, Sessions } from '../downstream/legacy/sessions.ts'
import type { Clock } from '../mesh/clock.ts'
import type { Live } from '../mesh/live.ts'
import type { GatewayGeneration } from '../registry/generation.ts'
import type { ListKind } from '../protocol/lists.ts'

/** The handlers and sessions of agents of both eras. */
export interface Agents {
  readonly sessions: Sessions
  readonly legacy: LegacyHandler
  readonly modern: ModernHandler
  /** Returns the name of an agent behind a shared address from its headers: its open session, else its tenant. */
  nameOf(headers: IncomingHttpHeaders): string
  /** Discards cached lists of `server`, or of all servers when undefined. */
  forgetLists(server?: string): void
  /** Tells agents on the endpoint for all servers about changed lists. */
  tellChanged(lists: readonly ListKind[]): void
  /** Ends sessions and streams of removed servers. */
  endOrphans(): void
  close(): Promise<void>
}

export function createAgents(
  live: Live<GatewayGeneration>,
  clock: Clock,
  limits: SessionLimits,
  guards: Guards,
  onSessionEnd: ConstructorParameters<typeof Sessions>[4],
): Agents {
  const sessions = new Sessions(live, clock, limits, guards, onSessionEnd)
  const modern = new ModernHandler(live, clock, guards)
  return {
    sessions,
    legacy: new LegacyHandler(live, sessions, clock, guards),
    modern,
    nameOf(headers) {
      const { 'mcp-session-id': id } = headers
      if (typeof id === 'string' && sessions.find(id) !== undefined) return `session ${id}`
      return `tenant ${guards.tenancies.of(headers, undefined, clock.now()).countsAs}`
    },
    forgetLists: (server) => modern.forgetLists(server),
    tellChanged(lists) {
      sessions.tellChanged(lists)
      modern.listening.tellChanged(lists)
    },
    endOrphans() {
      sessions.closeOrphans()
      const { servers } = live.current
      modern.listening.end(({ server }) => server !== undefined && !servers.has(server))
    },
    close() {
      modern.close()
      return sessions.closeAll()
    },
  }
}
