import assert from 'node:assert/strict'
import { createServer, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { test, type TestContext } from 'node:test'
import { Agents } from '../../src/load/agents.ts'
import { Cancellation } from '../../src/mesh/cancel.ts'
import { ManualClock } from '../support/manual-clock.ts'
import { until } from '../support/until.ts'

interface Asked {
  readonly method?: string
  readonly id?: number
}

/** A gateway that opens sessions on the test's command. */
async function gateway(t: TestContext) {
  const held: (() => void)[] = []
  const left: string[] = []
  const state = { isHeld: true, opened: 0, hangs: false }
  const answer = (response: ServerResponse, id: number | undefined) => {
    const session = `s${++state.opened}`
    response.writeHead(200, { 'content-type': 'application/json', 'mcp-session-id': session })
    if (state.hangs) return response.flushHeaders()
    const serverInfo = { name: 'g', version: '1' }
    const result = { protocolVersion: '2025-06-18', capabilities: {}, serverInfo }
    return response.end(JSON.stringify({ jsonrpc: '2.0', id, result }))
  }
  const server = createServer((request, response) => {
    if (request.method === 'DELETE') left.push(String(request.headers['mcp-session-id']))
    if (request.method !== 'POST') return response.writeHead(request.method === 'GET' ? 405 : 200).end()
    let text = ''
    request.on('data', (chunk: Buffer) => (text += chunk.toString()))
    request.on('end', () => {
      const { method, id } = JSON.parse(text) as Asked
      if (method !== 'initialize') return response.writeHead(202).end()
      if (state.isHeld) return held.push(() => answer(response, id))
      return answer(response, id)
    })
    return undefined
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  t.after(() => {
    server.close()
    server.closeAllConnections()
  })
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/mcp`, held, left, state }
}

function opening(url: string, places: number) {
  const [clock, stop] = [new ManualClock(), new Cancellation()]
  const open = Agents.open({ url, places, eras: ['legacy'], patienceMs: 1_000, clock, stop })
  return { clock, stop, open }
}

test('agents that are stopped while they open sessions leave none behind', async (t) => {
  const { url, held, left, state } = await gateway(t)
  const { stop, open } = opening(url, 6)
  const refused = assert.rejects(open, /agents cannot connect to/)
  await until('eight sessions are requested at a time', () => held.length === 8)
  stop.abort('over')
  for (const answer of held) answer()
  await refused
  assert.deepEqual([state.opened, [...left].sort()], [8, ['s1', 's2', 's3', 's4', 's5', 's6', 's7', 's8']])
})

test('a session whose id came before its answer is ended, too, and a gateway that says nothing is not waited for', async (t) => {
  const { url, held, left, state } = await gateway(t)
  const { clock, stop, open } = opening(url, 1)
  const refused = assert.rejects(open, /agents cannot connect to/)
  await until('two sessions are requested', () => held.length === 2)
  state.hangs = true
  held[0]!()
  stop.abort('over')
  await clock.advance(1_999)
  // Everything sent before this reply has been read, too.
  await (await fetch(url)).text()
  assert.equal(state.opened, 1)
  await until('the load has given up the hanging session', async () => {
    await clock.advance(1)
    return left.length > 0
  })
  await refused
  assert.deepEqual(left, ['s1'])
})

/** A gateway of the modern era that answers every call except calls of the tool `slow`, with a log of requests. */
async function modernGateway(t: TestContext, versions: readonly string[]) {
  const asked: string[] = []
  const results: Readonly<Record<string, object>> = {
    'server/discover': {
      supportedVersions: versions,
      capabilities: { tools: {} },
      serverInfo: { name: 'g', version: '1' },
      ttlMs: 0,
      cacheScope: 'private',
    },
    'tools/call': { content: [{ type: 'text', text: 'it is' }], structuredContent: { is: 1 }, isError: true },
  }
  const server = createServer((request, response) => {
    let text = ''
    request.on('data', (chunk: Buffer) => (text += chunk.toString()))
    request.on('end', () => {
      const { method = '', id, params } = JSON.parse(text) as Asked & { params?: { name?: string } }
      asked.push(`${method} ${String(request.headers['mcp-name'])}`)
      if (params?.name === 'slow') return
      const result = { resultType: 'complete', ...results[method] }
      response.writeHead(200, { 'content-type': 'application/json' })
      response.end(JSON.stringify({ jsonrpc: '2.0', id, result }))
    })
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  t.after(() => {
    server.close()
    server.closeAllConnections()
  })
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/mcp`, asked }
}

function openingModern(url: string) {
  const [clock, stop] = [new ManualClock(), new Cancellation()]
  const open = Agents.open({ url, places: 1, eras: ['modern'], patienceMs: 1_000, clock, stop })
  return { clock, open }
}

test('agents of the modern era are clients of the SDK: they find out what there is, and get what comes', async (t) => {
  const { url, asked } = await modernGateway(t, ['2026-07-28'])
  const { clock, open } = openingModern(url)
  const agents = await open
  const agent = agents.at(0, 'control', 'modern')
  const call = (name: string) => agent.call({ name, arguments: {}, meta: { 'dev.breakwater/intent': 'a' } })
  const answer = await call('read')
  assert.ok(answer.ok)
  assert.deepEqual([answer.result.structuredContent, answer.result.isError], [{ is: 1 }, true])
  const slow = call('slow')
  await until('the request has arrived', () => asked.length === 3)
  await clock.advance(1_000)
  assert.deepEqual(await slow, { ok: false, why: 'given up' })
  await agents.close()
  assert.deepEqual(asked, ['server/discover undefined', 'tools/call read', 'tools/call slow'])
})

test('agents of the modern era refuse a gateway without the modern era', async (t) => {
  const { url } = await modernGateway(t, ['2031-01-01'])
  await assert.rejects(openingModern(url).open, /agents cannot connect to/)
})

test('all agents are ended at the end', async (t) => {
  const { url, left, state } = await gateway(t)
  state.isHeld = false
  const agents = await opening(url, 10).open
  assert.equal(state.opened, 20)
  await agents.close()
  assert.equal(new Set(left).size, 20)
})
