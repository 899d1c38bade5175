import type { Endpoint } from '../../src/downstream/endpoint.ts'
import { Session, type SessionParts } from '../../src/downstream/legacy/session.ts'
import type { Message } from '../../src/mesh/call.ts'
import { testGuards } from './test-guards.ts'
import { capableClient } from '../support/caller.ts'
import { ManualClock } from '../support/manual-clock.ts'
import type { Json } from '../support/memory-pipe.ts'

/** An endpoint of this server that does nothing; `undefined` is the aggregate. */
export function idleEndpoint(server: string | undefined): Endpoint {
  const unused = () => Promise.reject(new Error('this endpoint is not asked anything'))
  return {
    server,
    welcome: unused,
    request: unused,
    notify: () => undefined,
    inbound: (_, __, message) => message,
    outbound: (_, __, message) => message,
  }
}

/** A session no client has connected to yet. */
export function testSession(parts: Partial<SessionParts> = {}) {
  const clock = new ManualClock()
  const guards = testGuards(clock)
  const session = new Session({
    id: 'session-1',
    endpoint: idleEndpoint(undefined),
    initializeParams: capableClient,
    headers: {},
    principal: '',
    client: '',
    version: '2025-11-25',
    clock,
    unread: guards.unread,
    keepAlive: guards.keepAlive,
    replayBudget: guards.replay,
    quotas: guards.quotas,
    inbound: (_, message) => message,
    outbound: (_, message) => message,
    ...parts,
  })
  return { clock, session }
}

/** Returns a server's message; adds `jsonrpc`. */
export function message(value: Json): Message {
  const whole = { jsonrpc: '2.0', ...value }
  return { text: JSON.stringify(whole), value: whole }
}
