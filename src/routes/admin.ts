import type { FastifyInstance } from 'fastify'
import { redact } from '../config/secrets/redact.ts'
import type { Sessions } from '../downstream/sessions.ts'
import type { Clock } from '../mesh/clock.ts'
import type { Live } from '../mesh/live.ts'
import { isObject } from '../protocol/jsonrpc.ts'
import type { GatewayGeneration } from '../registry/generation.ts'
import type { ReloadReport } from '../config/reload-report.ts'

export interface AdminParts {
  readonly live: Live<GatewayGeneration>
  readonly sessions: Sessions
  readonly clock: Clock
  readonly reload: () => Promise<ReloadReport>
}

/** Longest word of a client on itself that is shown, in characters. */
const LONGEST = 200

/** Of what a client says of itself, what tells it from others: the rest may be anything, and there may be much of it. */
function shown(clientInfo: unknown): Record<string, string> | undefined {
  if (!isObject(clientInfo)) return undefined
  const words: Record<string, string> = {}
  for (const key of ['name', 'title', 'version']) {
    const word = clientInfo[key]
    if (typeof word === 'string') words[key] = word.slice(0, LONGEST)
  }
  return words
}

/** What an operator asks about the gateway as a whole. */
export function registerAdmin(app: FastifyInstance, { live, sessions, clock, reload }: AdminParts): void {
  app.get('/admin/config', () => ({ hash: live.current.hash, config: redact(live.current.config) }))

  app.post('/admin/reload', async (_, reply) => {
    const report = await reload()
    return reply.code(report.ok ? 200 : 422).send(report)
  })

  app.get('/admin/sessions', () => ({
    open: sessions.size,
    max: sessions.limits.max,
    sessions: [...sessions.values()].slice(0, 1_000).map((session) => ({
      // Whoever knows a session's id can speak in its name: only its beginning is shown.
      id: `${session.id.slice(0, 8)}…`,
      endpoint: session.front.server === undefined ? '/mcp' : `/mcp/${session.front.server}`,
      version: session.version,
      client: shown(session.hello.clientInfo),
      inFlight: session.inFlight.size,
      listening: session.listening,
      idleMs: Math.round(session.idleMs),
    })),
    at: new Date(clock.wall()).toISOString(),
  }))
}
