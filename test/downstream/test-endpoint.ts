import type { IncomingHttpHeaders } from 'node:http'
import type { TestContext } from 'node:test'
import type { Endpoint, McpRequest } from '../../src/downstream/endpoint.ts'
import { LegacyHandler } from '../../src/downstream/legacy/handler.ts'
import type { RequestRates } from '../../src/downstream/limits/limits.ts'
import type { Response } from '../../src/downstream/respond.ts'
import { type SessionLimits, Sessions } from '../../src/downstream/legacy/sessions.ts'
import type { Message } from '../../src/mesh/call.ts'
import { liveWith } from '../support/live.ts'
import type { Server } from '../../src/registry/server.ts'
import { holdResponses } from '../support/held-responses.ts'
import { ManualClock } from '../support/manual-clock.ts'
import type { Json } from '../support/memory-pipe.ts'
import { generationOf } from './test-generation.ts'
import { testGuards } from './test-guards.ts'

export interface Reply {
  readonly status: number | undefined
  readonly headers: IncomingHttpHeaders
  readonly text: string
  readonly json: unknown
}

/** The endpoint's answer to a request: a promise of a whole response, or its JSON result at once. */
export type Answer = (request: McpRequest) => Promise<Response> | string

/** The legacy handler on an endpoint played by the test, over real connections. */
export async function testEndpoint(
  t: TestContext,
  answer: Answer = () => '{}',
  { max = 10, ...limits }: Partial<SessionLimits & { max: number }> = {},
  rates: RequestRates = {},
) {
  const clock = new ManualClock()
  const servers = new Map<string, Server>()
  let closed = false
  const live = liveWith(
    generationOf(servers, clock, () => (closed = true)),
    clock,
  )
  const defaults = {
    idle: 60_000,
    unused: 60_000,
    maxInFlight: 10,
  }
  const guards = testGuards(clock, rates)
  guards.quotas.sessions.share = { max, perClient: max }
  const sessions = new Sessions(live, clock, { ...defaults, ...limits }, guards)
  const handler = new LegacyHandler(live, sessions, clock, guards)
  const notified: Message[] = []
  const endpoint: Endpoint = {
    server: undefined,
    welcome: (_, __, version) => Promise.resolve({ text: `{"protocolVersion":"${version}"}` }),
    request(_, request) {
      const answered = answer(request)
      if (typeof answered !== 'string') return answered
      const text = `{"jsonrpc":"2.0","id":${JSON.stringify(request.id)},"result":${answered}}`
      return Promise.resolve({ text, status: 200 })
    },
    notify: (_, __, message) => void notified.push(message),
    inbound: (_, __, message) => message,
    outbound: (_, __, message) => message,
  }
  const hold = await holdResponses(t)

  async function send(
    take: (incoming: Parameters<LegacyHandler['post']>[0]) => unknown,
    headers: IncomingHttpHeaders,
  ): Promise<Reply> {
    const { response, client } = await hold()
    await take({ endpoint, headers, client: '127.0.0.1', response })
    await client.ended
    const { statusCode: status, headers: replied } = await client.headers
    const json: unknown =
      client.text.startsWith('{') || client.text.startsWith('[') ? JSON.parse(client.text) : undefined
    return { status, headers: replied, text: client.text, json }
  }

  const post = (body: unknown, headers: IncomingHttpHeaders = {}) => {
    const text = typeof body === 'string' ? body : JSON.stringify(body)
    return send((incoming) => handler.post(incoming, text, JSON.parse(text)), headers)
  }

  return {
    clock,
    live,
    /** Servers of the first generation. */
    servers,
    isClosed: () => closed,
    sessions,
    handler,
    endpoint,
    notified,
    hold,
    post,
    leave: (headers: IncomingHttpHeaders) => send((incoming) => handler.leave(incoming), headers),
    listen: (headers: IncomingHttpHeaders) => send((incoming) => handler.listen(incoming), headers),
    /** Begins a session; returns the headers of its later requests. */
    async begin(
      version = '2025-11-25',
    ): Promise<{ 'mcp-session-id': string; 'mcp-protocol-version': string }> {
      const params = { protocolVersion: version, capabilities: {}, clientInfo: { name: 'c', version: '1' } }
      const { headers } = await post({ jsonrpc: '2.0', id: 0, method: 'initialize', params })
      return { 'mcp-session-id': String(headers['mcp-session-id']), 'mcp-protocol-version': version }
    },
  }
}

export const request = (id: unknown, method = 'm', params: Json = {}) => ({
  jsonrpc: '2.0',
  id,
  method,
  params,
})
