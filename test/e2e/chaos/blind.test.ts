import assert from 'node:assert/strict'
import type { ServerResponse } from 'node:http'
import { join } from 'node:path'
import { after, before, test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { cleanUp, Gateway, type Json, newFolder } from '../support/gateway.ts'
import { ModernClient } from '../support/modern-client.ts'
import { RawClient, type RawReply } from '../support/raw-client.ts'
import { closeServers, RawServer, sendJson } from '../support/raw-server.ts'
import { until } from '../../support/until.ts'

/*
 * An agent must not be able to tell an injected failure from a real one. `real` really fails, as its tools are called;
 * `fake` answers everything, and faults hit the same tools of it. What the agent gets of both has to be the same, byte by byte, and
 * so have the attempts that the gateway has counted and the questions that suspicion made it ask.
 *
 * What may differ: the names of the two servers, which are written alike before they are compared; the header `date`; and, towards
 * the agent, `keep-alive`, by which each listener says how long it keeps connections.
 */

interface Failure {
  /** The tool, and the fault that imitates it. */
  readonly tool: string
  readonly type: string
  readonly fault?: Json
  /** How the real server fails; `answer` is the good one, as JSON text. */
  readonly really: (response: ServerResponse, answer: string, id: unknown) => unknown
  /** How the other one answers well: as JSON unless it has to be a stream. */
  readonly streams?: true
  /** Where the agent is the one who is meant, the real counterpart is a server without a gateway before it. */
  readonly sides?: readonly ('upstream' | 'client')[]
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
const upstream = ['upstream'] as const

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
    sides: upstream,
  },
  { tool: 'truncated', type: 'rpc.malformed', really: json(half), sides: upstream },
  {
    tool: 'bad_json',
    type: 'rpc.malformed',
    fault: { kind: 'bad_json' },
    really: json((answer) => `${answer.slice(0, -1)},}`),
    sides: upstream,
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
    sides: upstream,
  },
  {
    tool: 'wrong_id',
    type: 'rpc.wrong_id',
    really: json((answer, id) => answer.replace(JSON.stringify(id), '"nobody"')),
    sides: upstream,
  },
  { tool: 'reset', type: 'conn.reset', really: reset },
  {
    tool: 'reset_stream',
    type: 'conn.reset',
    fault: { at: { afterBytes: 0 } },
    // In one breath with the head it would be read as a mere end.
    really: (response) => setTimeout(reset, 50, beginStream(response)),
    streams: true,
    sides: upstream,
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
    sides: upstream,
  },
  {
    tool: 'bad_frame',
    type: 'sse.bad_frame',
    fault: { afterEvents: 0 },
    really: (response) => beginStream(response).end('data: {"jsonrpc":\n\n'),
    streams: true,
    sides: upstream,
  },
  { tool: 'half_open', type: 'conn.half_open', really: () => undefined, sides: upstream },
  {
    tool: 'latency',
    type: 'conn.latency',
    fault: { distribution: { kind: 'fixed', delay: '60s' } },
    really: () => undefined,
    sides: upstream,
  },
  { tool: 'late', type: 'rpc.late', fault: { delay: '60s' }, really: () => undefined, sides: upstream },
]

/** The same over a pipe, where a server's process fails as the arguments of the call say. */
const ofPipes = [
  { name: 'error', type: 'rpc.error', mode: 'rpc_error' },
  { name: 'silent', type: 'conn.half_open', mode: 'hang_after' },
  {
    name: 'latent',
    type: 'conn.latency',
    mode: 'hang_after',
    fault: { distribution: { kind: 'fixed', delay: '60s' } },
  },
]

const hasty = { attemptTimeout: { timeout: 200 } }

const script = fileURLToPath(new URL('../../fixtures/counting-server.js', import.meta.url))

const eras = ['legacy', 'modern'] as const
type Era = (typeof eras)[number]

const answerTo = (id: unknown, era: Era): string => {
  const type = era === 'modern' ? '"resultType":"complete",' : ''
  return `{"jsonrpc":"2.0","id":${JSON.stringify(id)},"result":{${type}"content":[{"type":"text","text":"fine"}]}}`
}

/** A server with all tools, which fails as they say if it is to. */
function startServer(era: Era, fails: boolean): Promise<RawServer> {
  return RawServer.start(({ message }, response) => {
    const { id, method, params } = message as { id?: unknown; method?: string; params?: Json }
    if (method === 'server/discover') return discovered(id, response)
    if (method === 'tools/list') return listed(id, response)
    const failure = method === 'tools/call' ? failures.find(({ tool }) => tool === params?.name) : undefined
    if (method !== 'tools/call') return era === 'legacy' || method === 'ping' ? false : gone(response)
    const answer = answerTo(id, era)
    if (failure !== undefined && fails) failure.really(response, answer, id)
    else if (failure?.streams) beginStream(response).end(`data: ${answer}\n\n`)
    else sendJson(response, answer)
    return true
  })
}

function gone(response: ServerResponse): true {
  response.writeHead(405).end()
  return true
}

function discovered(id: unknown, response: ServerResponse): true {
  const result = {
    resultType: 'complete',
    supportedVersions: ['2026-07-28'],
    capabilities: { tools: {} },
    serverInfo: { name: 'raw', version: '1' },
    ttlMs: 0,
    cacheScope: 'private',
  }
  sendJson(response, JSON.stringify({ jsonrpc: '2.0', id, result }))
  return true
}

function listed(id: unknown, response: ServerResponse): true {
  const names = [...failures.map(({ tool }) => tool), 'refused']
  const tools = names.map((name) => ({
    name,
    inputSchema: { type: 'object' },
    annotations: { readOnlyHint: true },
  }))
  const result = { resultType: 'complete', tools, ttlMs: 0, cacheScope: 'private' }
  sendJson(response, JSON.stringify({ jsonrpc: '2.0', id, result }))
  return true
}

/** What an agent sees of a reply, without what may differ. */
interface Seen {
  readonly status: number
  readonly headers: Readonly<Record<string, string>>
  readonly text: string
}

function seenOf({ status: code, headers, text }: RawReply): Seen {
  const { date: _, 'keep-alive': __, ...others } = Object.fromEntries(headers)
  return {
    status: code,
    headers: others,
    text: text.replaceAll(/\b(real|fake)_[a-z]+\b/g, 'SERVER'),
  }
}

/** Calls a tool; a connection that breaks is something to see, too. */
async function call(agent: (tool: string) => Promise<RawReply>, tool: string): Promise<Seen | string> {
  try {
    return seenOf(await agent(tool))
  } catch (error) {
    const { cause } = error as { cause?: { code?: string } }
    return `the connection broke: ${cause?.code}`
  }
}

async function agentAt(era: Era, url: string, id = 'the-call'): Promise<(tool: string) => Promise<RawReply>> {
  const params = (name: string) => ({ name, arguments: {} })
  if (era === 'legacy') {
    const client = await RawClient.open(url)
    return (tool) => client.post({ jsonrpc: '2.0', id, method: 'tools/call', params: params(tool) })
  }
  const client = new ModernClient(url)
  return (tool) =>
    client.post({ jsonrpc: '2.0', id, method: 'tools/call', params: { ...params(tool), _meta: client.meta } })
}

let gateway: Gateway
const servers = new Map<string, RawServer>()

before(async () => {
  const entries: [string, object][] = []
  const faults: Json[] = []
  for (const era of eras) {
    for (const kind of ['real', 'fake']) {
      const name = `${kind}_${era}`
      const server = await startServer(era, kind === 'real')
      servers.set(name, server)
      // The test would take a regular ping for a ping after a suspicion.
      entries.push([name, { url: server.url, era, trusted: true, health: { every: '1h' } }])
    }
    const common = { rate: 1, ttl: '15m' }
    faults.push({
      name: `refused.${era}`,
      type: 'conn.refused',
      ...common,
      match: { server: `fake_${era}`, tool: 'refused' },
    })
    for (const { tool, type, fault } of failures)
      faults.push({
        name: `${tool}.${era}`,
        type,
        ...common,
        match: { server: `fake_${era}`, tool },
        ...fault,
      })
  }
  const folder = await newFolder()
  for (const { name, type, fault } of ofPipes) {
    for (const kind of ['real', 'fake']) {
      const args = [script, 'stdio', 'legacy', join(folder, `${kind}_${name}`)]
      entries.push([`${kind}_${name}`, { command: process.execPath, args, era: 'legacy', trusted: true }])
    }
    faults.push({
      name: `${name}.pipe`,
      type,
      rate: 1,
      ttl: '15m',
      allowWrites: true,
      match: { server: `fake_${name}`, method: 'tools/call' },
      ...fault,
    })
  }
  // For the agent's side another server, of which nothing else is known.
  const well = await startServer('legacy', false)
  entries.push(['to_agent', { url: well.url, era: 'legacy', trusted: true }])
  for (const { tool, type, fault, sides } of failures)
    if (sides === undefined)
      faults.push({
        name: `${tool}.client`,
        type,
        rate: 1,
        ttl: '15m',
        side: 'client',
        match: { server: 'to_agent', tool },
        ...fault,
      })
  gateway = await Gateway.start({
    gateway: { environment: 'test' },
    servers: Object.fromEntries(entries),
    policies: {
      defaults: {
        retry: { maxRetries: 2, base: 1, cap: 5, budget: { floor: 1_000, leastConcurrent: 1_000 } },
        // No probe would end the wait for a server that is really gone.
        ...{ gate: false, overdue: false },
      },
      overrides: [
        // Only of what never comes: all else may take its time on a busy machine.
        ...['half_open', 'latency', 'late'].map((tool) => ({ match: { tool }, ...hasty })),
        // What has failed over a pipe goes well when it is sent again.
        ...ofPipes.flatMap(({ name, mode }) =>
          ['real', 'fake'].map((kind) => ({
            match: { server: `${kind}_${name}` },
            retry: false,
            ...(mode === 'hang_after' && hasty),
          })),
        ),
      ],
    },
    chaos: { enabled: true, persist: true, faults },
  })
  await gateway.waitFor('up', ...entries.map(([name]) => name))
})
after(async () => {
  closeServers()
  await cleanUp()
})

const attemptsAt = (server: string, tool: string) =>
  gateway.sums('breakwater_upstream_attempts_total', 'outcome', `server="${server}",tool="${tool}"`)

for (const era of eras) {
  // The first of all: no other failure has raised a suspicion yet.
  test(`an injected failure has the server suspected and asked like a real one, ${era}`, async () => {
    for (const name of [`real_${era}`, `fake_${era}`]) {
      assert.equal(servers.get(name)?.of('ping').length, 0)
      await call(await agentAt(era, gateway.mcp(name)), 'status')
      await until(`${name} is asked whether it is there`, () => servers.get(name)?.of('ping').length !== 0)
    }
  })

  for (const { tool, type } of failures) {
    test(`${type} (${tool}), ${era}: the agent sees a real failure and an injected one alike`, async () => {
      const seen: unknown[] = []
      for (const kind of ['real', 'fake']) {
        const name = `${kind}_${era}`
        const reply = await call(await agentAt(era, gateway.mcp(name)), tool)
        seen.push({ reply, attempts: await attemptsAt(name, tool) })
      }
      assert.notEqual((seen[0] as { reply: Seen }).reply.text.includes('fine'), true, 'it fails')
      assert.deepEqual(seen[1], seen[0])
    })
  }

  test(`conn.refused, ${era}: the agent sees a real failure and an injected one alike`, async () => {
    const [real, fake] = [`real_${era}`, `fake_${era}`]
    const [atReal, atFake] = [await agentAt(era, gateway.mcp(real)), await agentAt(era, gateway.mcp(fake))]
    for (const agent of [atReal, atFake]) await agent('ready')
    await servers.get(real)?.stop()
    assert.deepEqual(await call(atFake, 'refused'), await call(atReal, 'refused'))
    assert.deepEqual(await attemptsAt(fake, 'refused'), await attemptsAt(real, 'refused'))
  })
}

for (const { name, type, mode } of ofPipes) {
  test(`${type}, over a pipe: the agent sees a real failure and an injected one alike`, async () => {
    const [real, fake] = await Promise.all(
      ['real', 'fake'].map(async (kind) => {
        const client = await RawClient.open(gateway.mcp(`${kind}_${name}`))
        const params = {
          name: 'write',
          arguments: { token: 'once', mode: kind === 'real' ? mode : undefined },
        }
        return seenOf(await client.post({ jsonrpc: '2.0', id: 'the-call', method: 'tools/call', params }))
      }),
    )
    assert.match(real?.text ?? '', /"error"/)
    assert.deepEqual(fake, real)
  })
}

for (const { tool, type, sides } of failures) {
  if (sides !== undefined) continue
  test(`${type} (${tool}), to the agent: it sees what a server without a gateway would show it`, async () => {
    const direct = await startServer('legacy', true)
    const real = await call(await agentAt('legacy', direct.url), tool)
    assert.deepEqual(await call(await agentAt('legacy', gateway.mcp('to_agent')), tool), real)
  })
}
