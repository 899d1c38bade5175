import type { IncomingHttpHeaders } from 'node:http'
import type { TestContext } from 'node:test'
import type { Endpoint, McpRequest, Welcome } from '../../../src/downstream/endpoint.ts'
import { ModernHandler } from '../../../src/downstream/modern/handler.ts'
import type { RequestRates } from '../../../src/downstream/limits/limits.ts'
import type { Response } from '../../../src/downstream/respond.ts'
import type { Message } from '../../../src/mesh/call.ts'
import { liveWith } from '../../support/live.ts'
import type { Server } from '../../../src/registry/server.ts'
import {
  CLIENT_CAPABILITIES_KEY,
  CLIENT_INFO_KEY,
  encodeHeaderValue,
  MODERN_VERSION,
  PROTOCOL_VERSION_KEY,
} from '../../../src/protocol/versions.ts'
import { type HeldClient, holdResponses } from '../../support/held-responses.ts'
import { ManualClock } from '../../support/manual-clock.ts'
import type { Json } from '../../support/memory-pipe.ts'
import { generationOf } from '../test-generation.ts'
import { testGuards } from '../test-guards.ts'

/** The sender's description in a complete request. */
export const meta: Json = {
  [PROTOCOL_VERSION_KEY]: MODERN_VERSION,
  [CLIENT_INFO_KEY]: { name: 'test', version: '1' },
  [CLIENT_CAPABILITIES_KEY]: {},
}

/** Returns a request; `own` goes into its `_meta`. */
export function modern(id: unknown, method: string, params: Json = {}, own: Json = {}): Json {
  return { jsonrpc: '2.0', id, method, params: { ...params, _meta: { ...meta, ...own } } }
}

/** Returns a client's headers for a request. */
export function headersFor(body: Json): IncomingHttpHeaders {
  const params = (body.params ?? {}) as Json
  const name = params.name ?? params.uri ?? params.taskId
  return {
    'mcp-protocol-version': MODERN_VERSION,
    'mcp-method': String(body.method),
    ...(typeof name === 'string' ? { 'mcp-name': encodeHeaderValue(name) } : {}),
  }
}

/** Returns a server's message; adds `jsonrpc`. */
export function message(value: Json): Message {
  const whole = { jsonrpc: '2.0', ...value }
  return { text: JSON.stringify(whole), value: whole }
}

/** The endpoint's answer to a request: its result as JSON text, or a promise of a whole response. */
export type Answer = (request: McpRequest) => Promise<Response> | string

export function result(request: McpRequest, text: string): Response {
  return { text: `{"jsonrpc":"2.0","id":${JSON.stringify(request.id)},"result":${text}}`, status: 200 }
}

const capabilities = { tools: { listChanged: true }, resources: { listChanged: true, subscribe: true } }

/** The modern handler on an endpoint played by the test, over real connections. */
export async function testModern(t: TestContext, answer: Answer = () => '{}', rates: RequestRates = {}) {
  const clock = new ManualClock()
  const live = liveWith(generationOf(new Map(), clock), clock)
  const handler = new ModernHandler(live, clock, testGuards(clock, rates))
  const requests: McpRequest[] = []
  let welcome: Promise<Welcome> = Promise.resolve({
    text: JSON.stringify({
      capabilities: { ...capabilities, tasks: {} },
      serverInfo: { name: 'played' },
      instructions: 'hi',
    }),
  })
  const endpoint: Endpoint = {
    server: undefined,
    welcome: () => welcome,
    request(_, request) {
      requests.push(request)
      const answered = answer(request)
      return typeof answered === 'string' ? Promise.resolve(result(request, answered)) : answered
    },
    notify: () => undefined,
    inbound: (_, __, inbound) => inbound,
    outbound: (_, __, outbound) => outbound,
  }
  const hold = await holdResponses(t)

  /** Sends a request, and leaves its reply to the test. */
  async function open(body: Json, headers = headersFor(body)): Promise<HeldClient> {
    const { response, client } = await hold({ accept: headers.accept })
    void handler.post({ endpoint, headers, client: '127.0.0.1', response }, JSON.stringify(body), body)
    return client
  }

  return {
    clock,
    /** Puts a config with these servers in force. */
    reload: (servers: ReadonlyMap<string, Server>) => void live.swap(generationOf(servers, clock)),
    endpoint: handler,
    requests,
    hold,
    open,
    /** Sets the next answers to `initialize` and `server/discover`. */
    welcomesWith: (next: Promise<Welcome>) => void (welcome = next),
    /** Sends a request, and waits for the end of its reply or stream. */
    async send(body: Json, headers?: IncomingHttpHeaders) {
      return reply(await open(body, headers))
    },
  }
}

/** Resolves to a reply once it has ended. */
export async function reply(client: HeldClient) {
  await client.ended
  const { statusCode: status, headers } = await client.headers
  const texts = client.text.startsWith('{') ? [client.text] : client.data
  return { status, headers, messages: texts.map((text) => JSON.parse(text) as Json) }
}

/** Returns a promise and its resolve function. */
export function later<T>() {
  let resolve!: (value: T) => void
  const promise = new Promise<T>((done) => (resolve = done))
  return { promise, resolve }
}
