import { Sessions } from '../../src/downstream/legacy/sessions.ts'
import type { Session } from '../../src/downstream/legacy/session.ts'
import { liveWith } from '../support/live.ts'
import type { Server } from '../../src/registry/server.ts'
import { capableClient } from '../support/caller.ts'
import { ManualClock } from '../support/manual-clock.ts'
import { testServer } from '../registry/test-server.ts'
import { generationOf } from './test-generation.ts'
import { testGuards } from './test-guards.ts'
import { idleEndpoint } from './test-session.ts'

export const IDLE_MS = 60_000
export const UNUSED_MS = 30_000

export function testSessions(max = 3, perClient = max) {
  const clock = new ManualClock()
  const { server, upstream } = testServer({}, undefined, { clock })
  const generation = (...servers: Server[]) =>
    generationOf(new Map(servers.map((each) => [each.name, each])), clock)
  const live = liveWith(generation(server), clock)
  const limits = {
    idle: IDLE_MS,
    unused: UNUSED_MS,
    maxInFlight: 10,
  }
  const guards = testGuards(clock)
  guards.quotas.sessions.share = { max, perClient }
  const sessions = new Sessions(live, clock, limits, guards)
  const draft = (
    endpoint: string | undefined,
    client = '',
    headers: Readonly<Record<string, string>> = {},
    initializeParams: Readonly<Record<string, unknown>> = capableClient,
  ) =>
    sessions.draft({
      endpoint: idleEndpoint(endpoint),
      initializeParams,
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
    initializeParams: guards.quotas.initializeParams,
    generation,
    draft,
    /** `used`: the session has had a request. */
    add(
      endpoint?: string,
      client?: string,
      { headers = {}, used = true }: { headers?: Readonly<Record<string, string>>; used?: boolean } = {},
    ): Session {
      const session = draft(endpoint, client, headers)
      session.used = used
      sessions.add(session)
      return session
    },
  }
}
