import assert from 'node:assert/strict'
import type { ServerResponse } from 'node:http'
import { after, before, test } from 'node:test'
import { discovered } from '../../support/modern.ts'
import { until } from '../../support/until.ts'
import { armed, cleanUp, Gateway, type Json } from '../support/gateway.ts'
import { closeServers, RawServer, sendJson, sendResult } from '../support/raw-server.ts'
import { attemptsAt, callerAt, eras, kinds } from './alike.ts'

/*
 * Neither the gateway nor an observer may tell an injected failure of a server from a real failure. `real` fails in the
 * way each tool is named; `fake` answers everything, and faults hit the same tools. Three things have to be equal: the
 * agent's view byte by byte, the counted attempts, and the probes caused by suspicion. Faults on the agent's own
 * connection are in test/wire/cells.
 */

interface Failure {
  /** The tool, and the fault that imitates it. */
  readonly tool: string
  readonly type: string
  readonly fault?: Json
  /** The real failure; `answer` is the correct answer, as JSON text. */
  readonly really: (response: ServerResponse, answer: string, id: unknown) => unknown
  /** When true, the good server answers as a stream instead of JSON. */
  readonly streams?: true
}

const status = (code: number, type: string, body: string, headers: Record<string, string> = {}) => {
  return (response: ServerResponse) =>
    response
      .writeHead(code, { 'content-type': type, ...headers, 'content-length': Buffer.byteLength(body) })
      .end(body)
}

const bearer = (error: string, words: string, more = '') =>
  status(code(error), 'application/json', JSON.stringify({ error, error_description: words }), {
    'www-authenticate': `Bearer error="${error}", error_description="${words}"${more}`,
  })
const code = (error: string) => (error === 'invalid_token' ? 401 : 403)

const json = (text: (answer: string, id: unknown) => string) => {
  return (response: ServerResponse, answer: string, id: unknown) => {
    const body = text(answer, id)
    response
      .writeHead(200, { 'content-type': 'application/json', 'content-length': Buffer.byteLength(body) })
      .end(body)
  }
}

function beginStream(response: ServerResponse): ServerResponse {
  response.writeHead(200, { 'content-type': 'text/event-stream' })
  response.flushHeaders()
  return response
}

const reset = (response: ServerResponse) => response.socket?.resetAndDestroy()
const half = (text: string) => text.slice(0, Math.floor(text.length / 2))

const failures: readonly Failure[] = [
  { tool: 'status', type: 'http.status', really: status(503, 'text/plain', '') },
  {
    tool: 'status_words',
    type: 'http.status',
    fault: { status: 502, body: 'Bad Gateway', headers: { 'retry-after': '0' } },
    really: status(502, 'text/plain', 'Bad Gateway', { 'retry-after': '0' }),
  },
  {
    tool: 'limited',
    type: 'limit.429',
    fault: { form: 'absurd' },
    really: status(
      429,
      'application/json',
      '{"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":"Too many requests"}}',
      {
        'retry-after': '315360000',
      },
    ),
  },
  { tool: 'expired', type: 'auth.expired', really: bearer('invalid_token', 'The access token expired') },
  {
    tool: 'scope',
    type: 'auth.scope',
    really: bearer('insufficient_scope', 'The access token lacks a scope', ', scope="mcp:tools"'),
  },
  {
    tool: 'rpc_error',
    type: 'rpc.error',
    fault: { message: 'out of order', data: { a: 1 } },
    really: json(
      (_, id) =>
        `{"jsonrpc":"2.0","id":${JSON.stringify(id)},"error":{"code":-32603,"message":"out of order","data":{"a":1}}}`,
    ),
  },
  { tool: 'truncated', type: 'rpc.malformed', really: json(half) },
  {
    tool: 'bad_json',
    type: 'rpc.malformed',
    fault: { kind: 'bad_json' },
    really: json((answer) => `${answer.slice(0, -1)},}`),
  },
  {
    tool: 'page',
    type: 'rpc.malformed',
    fault: { kind: 'wrong_content_type' },
    really: (response, answer) =>
      status(
        200,
        'text/html; charset=utf-8',
        `<!doctype html><html><body><pre>${answer}</pre></body></html>`,
      )(response),
  },
  {
    tool: 'wrong_id',
    type: 'rpc.wrong_id',
    really: json((answer, id) => answer.replace(JSON.stringify(id), '"nobody"')),
  },
  { tool: 'reset', type: 'conn.reset', really: reset },
  {
    tool: 'reset_stream',
    type: 'conn.reset',
    fault: { at: { afterBytes: 0 } },
    // Together with the head, the reset would look like a plain end.
    really: (response) => setTimeout(reset, 50, beginStream(response)),
    streams: true,
  },
  {
    tool: 'cut',
    type: 'sse.cut',
    fault: { afterEvents: 0 },
    really(response) {
      beginStream(response)
      setTimeout(() => response.socket?.end(), 50)
    },
    streams: true,
  },
  {
    tool: 'bad_frame',
    type: 'sse.bad_frame',
    fault: { afterEvents: 0 },
    really: (response) => beginStream(response).end('data: {"jsonrpc":\n\n'),
    streams: true,
  },
  { tool: 'half_open', type: 'conn.half_open', really: () => undefined },
  {
    tool: 'latency',
    type: 'conn.latency',
    fault: { distribution: { kind: 'fixed', delay: '60s' } },
    really: () => undefined,
  },
  { tool: 'late', type: 'rpc.late', fault: { delay: '60s' }, really: () => undefined },
]

const hasty = { attemptTimeout: { timeout: 200 } }

type Era = (typeof eras)[number]

const tools = [...failures.map(({ tool }) => tool), 'refused'].map((name) => ({
  name,
  inputSchema: { type: 'object' },
  annotations: { readOnlyHint: true },
}))

/** A server with all tools; if `fails`, each tool fails in its own way. */
function startServer(era: Era, fails: boolean): Promise<RawServer> {
  return RawServer.start(({ message }, response) => {
    const { id, method, params } = message as { id?: unknown; method?: string; params?: Json }
    if (method === 'server/discover')
      return sendResult(response, id, { ...discovered, capabilities: { tools: {} } })
    if (method === 'tools/list')
      return sendResult(response, id, { resultType: 'complete', tools, ttlMs: 0, cacheScope: 'private' })
    if (method !== 'tools/call') {
      if (era === 'modern' && method !== 'ping') response.writeHead(405).end()
      return era === 'modern' && method !== 'ping'
    }
    const failure = failures.find(({ tool }) => tool === params?.name)
    const type = era === 'modern' ? { resultType: 'complete' } : {}
    const result = { ...type, content: [{ type: 'text', text: 'fine' }] }
    const answer = JSON.stringify({ jsonrpc: '2.0', id, result })
    if (failure !== undefined && fails) failure.really(response, answer, id)
    else if (failure?.streams) beginStream(response).end(`data: ${answer}\n\n`)
    else sendJson(response, answer)
    return true
  })
}

let gateway: Gateway
const servers = new Map<string, RawServer>()

before(async () => {
  const entries: Record<string, Json> = {}
  const faults: Json[] = []
  for (const era of eras) {
    for (const kind of kinds) {
      const name = `${kind}_${era}`
      const server = await startServer(era, kind === 'real')
      servers.set(name, server)
      // The test would mistake a regular ping for a ping after a suspicion.
      entries[name] = { url: server.url, era, trusted: true, health: { every: '1h' } }
    }
    for (const { tool, type, fault } of [{ tool: 'refused', type: 'conn.refused', fault: {} }, ...failures])
      faults.push({ name: `${tool}.${era}`, type, match: { server: `fake_${era}`, tool }, ...fault })
  }
  gateway = await Gateway.start({
    gateway: { environment: 'test' },
    servers: entries,
    policies: {
      defaults: {
        retry: { maxRetries: 2, base: 1, cap: 5, budget: { floor: 1_000, leastConcurrent: 1_000 } },
        // No probe would end the wait for a really lost server.
        ...{ gate: false, overdue: false },
      },
      // Only for missing answers: everything else may take its time on a busy machine.
      overrides: ['half_open', 'latency', 'late'].map((tool) => ({ match: { tool }, ...hasty })),
    },
    chaos: armed(faults),
  })
  await gateway.waitFor('up', ...Object.keys(entries))
})
after(async () => {
  closeServers()
  await cleanUp()
})

for (const era of eras) {
  // Runs first, before any other failure raises a suspicion.
  test(`an injected failure makes the gateway suspect and ping the server like a real failure, ${era}`, async () => {
    for (const name of kinds.map((kind) => `${kind}_${era}`)) {
      assert.equal(servers.get(name)?.of('ping').length, 0)
      await (
        await callerAt(era, gateway.mcp(name))
      )('status')
      await until(`the server ${name} is pinged`, () => servers.get(name)?.of('ping').length !== 0)
    }
  })

  for (const { tool, type } of failures)
    test(`${type} (${tool}), ${era}: the agent sees a real failure and an injected one alike`, async () => {
      const seen = []
      for (const name of kinds.map((kind) => `${kind}_${era}`)) {
        const reply = await (await callerAt(era, gateway.mcp(name)))(tool)
        seen.push({ reply, attempts: await attemptsAt(gateway, name, tool) })
      }
      assert.equal(seen[0]!.reply.text.includes('fine'), false, 'the call does not fail')
      assert.deepEqual(seen[1], seen[0])
    })

  test(`conn.refused, ${era}: the agent sees a real failure and an injected one alike`, async () => {
    const [real, fake] = [`real_${era}`, `fake_${era}`]
    const [atReal, atFake] = [await callerAt(era, gateway.mcp(real)), await callerAt(era, gateway.mcp(fake))]
    for (const agent of [atReal, atFake]) await agent('ready')
    await servers.get(real)?.stop()
    assert.deepEqual(await atFake('refused'), await atReal('refused'))
    assert.deepEqual(await attemptsAt(gateway, fake, 'refused'), await attemptsAt(gateway, real, 'refused'))
  })
}
