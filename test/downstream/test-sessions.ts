import { Sessions } from '../../src/downstream/sessions.ts'
import type { Session } from '../../src/downstream/session.ts'
import { Live } from '../../src/mesh/live.ts'
import type { GatewayGeneration } from '../../src/registry/generation.ts'
import type { Server } from '../../src/registry/server.ts'
import { capableHello } from '../support/caller.ts'
import { ManualClock } from '../support/manual-clock.ts'
import { testServer } from '../registry/test-server.ts'
import { testGuards } from './test-guards.ts'
import { idleFront } from './test-session.ts'

export const IDLE_MS = 60_000
export const UNUSED_MS = 30_000

/** The sessions of a gateway with one server, `s`. */
export function testSessions(max = 3, perClient = max) {
  const clock = new ManualClock()
  const { server, upstream } = testServer({}, undefined, { clock })
  const generation = (...servers: Server[]) =>
    ({
      servers: new Map(servers.map((each) => [each.name, each])),
      close: () => undefined,
    }) as unknown as GatewayGeneration
  const live = new Live(generation(server), clock)
  const limits = {
    max,
    perClient,
    idle: IDLE_MS,
    unused: UNUSED_MS,
    maxInFlight: 10,
    replayEvents: 100,
    replayBytes: 10_000,
  }
  const guards = testGuards(clock)
  const sessions = new Sessions(live, clock, limits, guards)
  const draft = (
    front: string | undefined,
    client = '',
    headers: Readonly<Record<string, string>> = {},
    hello: Readonly<Record<string, unknown>> = capableHello,
  ) =>
    sessions.draft({
      front: idleFront(front),
      hello,
      headers,
      version: '2025-11-25',
      client,
    })
  return {
    clock,
    live,
    server,
    upstream,
    sessions,
    greetings: guards.quotas.greetings,
    generation,
    draft,
    /** `used`: it has had a request. */
    add(
      front?: string,
      client?: string,
      { headers = {}, used = true }: { headers?: Readonly<Record<string, string>>; used?: boolean } = {},
    ): Session {
      const session = draft(front, client, headers)
      session.used = used
      sessions.add(session)
      return session
    },
  }
}
