import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'
import { until } from '../../support/until.ts'
import { armed, cleanUp, Gateway, type Json } from '../support/gateway.ts'
import { ModernClient } from '../support/modern-client.ts'
import { RawClient } from '../support/raw-client.ts'
import { closeServers, RawServer } from '../support/raw-server.ts'
import { closeClients, connect } from '../support/sdk-client.ts'

/** Faults towards agents; each has its own server, with the fault's name. */
const faults: Readonly<Record<string, Json>> = {
  refused: { type: 'initialize.refused', code: -32099, message: 'Not now' },
  outdated: { type: 'initialize.version' },
  incapable: { type: 'initialize.no_capabilities' },
  hanging: { type: 'initialize.hang', hold: '10m' },
  late: { type: 'initialize.hang', hold: 200 },
  puzzled: { type: 'ping.error' },
  silent: { type: 'ping.unanswered', hold: '10m' },
}

let gateway: Gateway
let server: RawServer

before(async () => {
  server = await RawServer.start(() => false, ['work'])
  const names = Object.keys(faults)
  gateway = await Gateway.start({
    gateway: { environment: 'test' },
    servers: Object.fromEntries([...names, 'well'].map((name) => [name, { url: server.url, era: 'legacy' }])),
    chaos: armed([
      ...names.map((name) => ({ name, side: 'client', match: { server: name }, ...faults[name] })),
      {
        ...{ name: 'everywhere', side: 'client', type: 'ping.error', code: -32000, message: 'Everywhere' },
        match: { header: { 'x-shaken': 'yes' } },
      },
    ]),
  })
  await gateway.waitFor('up', ...names, 'well')
})
after(async () => {
  await closeClients()
  await cleanUp()
  closeServers()
})

const fatesOf = (fault: string) => gateway.sums('breakwater_fault_outcomes_total', 'fate', `fault="${fault}"`)

async function sessionsAt(name: string): Promise<number> {
  const { body } = await gateway.admin<{ sessions: { endpoint: string }[] }>('/admin/sessions')
  return body.sessions.filter(({ endpoint }) => endpoint === `/mcp/${name}`).length
}

function initialize(name: string, signal?: AbortSignal): Promise<Response> {
  const params = {
    protocolVersion: '2025-11-25',
    capabilities: {},
    clientInfo: { name: 'raw', version: '1' },
  }
  return fetch(gateway.mcp(name), {
    method: 'POST',
    body: JSON.stringify({ jsonrpc: '2.0', id: 'hello', method: 'initialize', params }),
    headers: { 'content-type': 'application/json', accept: 'application/json, text/event-stream' },
    ...(signal && { signal }),
  })
}

test('initialize.refused: the agent gets the error, and no session', async () => {
  const sent = server.of('initialize').length
  const reply = await initialize('refused')
  assert.deepEqual(await reply.json(), {
    jsonrpc: '2.0',
    id: 'hello',
    error: { code: -32099, message: 'Not now' },
  })
  assert.equal(reply.headers.get('mcp-session-id'), null)
  assert.equal(await sessionsAt('refused'), 0)
  assert.equal(server.of('initialize').length, sent)
  await assert.rejects(connect(gateway.mcp('refused')), /Not now/)
  const { messages } = await new ModernClient(gateway.mcp('refused')).ask('server/discover')
  assert.deepEqual(messages[0]?.error, { code: -32099, message: 'Not now' })
  assert.deepEqual(await fatesOf('refused'), { surfaced: 3 })
})

test('initialize.version: an agent that checks the version stops the handshake', async () => {
  const { result } = (await (await initialize('outdated')).json()) as { result: Json }
  assert.equal(result.protocolVersion, '1999-01-01')
  await assert.rejects(connect(gateway.mcp('outdated')), /1999-01-01/)
  const { messages } = await new ModernClient(gateway.mcp('outdated')).ask('server/discover')
  assert.deepEqual((messages[0]?.result as Json).supportedVersions, ['1999-01-01'])
  const { escaped = 0, surfaced = 0 } = await fatesOf('outdated')
  assert.equal(escaped + surfaced, 3)
})

test('initialize.no_capabilities: the agent sees no capabilities, in a working session', async () => {
  const client = await RawClient.open(gateway.mcp('incapable'))
  assert.deepEqual((client.welcome.result as Json).capabilities, {})
  assert.notEqual(client.session, '')
  assert.ok((await client.request('tools/list')).result)
  const { messages } = await new ModernClient(gateway.mcp('incapable')).ask('server/discover')
  assert.deepEqual((messages[0]?.result as Json).capabilities, {})
})

test('initialize.hang: the answer and the session come when the fault ends', async () => {
  const client = await RawClient.open(gateway.mcp('late'))
  assert.ok(client.welcome.result)
  assert.notEqual(client.session, '')
  assert.deepEqual(await fatesOf('late'), { delayed: 1 })
})

test('initialize.hang: an agent that gives up leaves no session behind', async () => {
  const abort = new AbortController()
  const reply = initialize('hanging', abort.signal)
  await until('the session exists', async () => (await sessionsAt('hanging')) === 1)
  abort.abort()
  await assert.rejects(reply)
  await until('the session is gone', async () => (await sessionsAt('hanging')) === 0)
})

test('ping.error: the agent gets the error', async () => {
  const client = await RawClient.open(gateway.mcp('puzzled'))
  const { error } = await client.request('ping')
  assert.deepEqual(error, { code: -32601, message: 'Method not found' })
  assert.deepEqual(await fatesOf('puzzled'), { surfaced: 1 })
})

test("faults towards agents spare the gateway's own requests and agents of other servers", async () => {
  const { body } = await gateway.admin<{ faults: { discovery: { hits: number } }[] }>('/admin/chaos')
  for (const { discovery } of body.faults) assert.equal(discovery.hits, 0)
  const client = await RawClient.open(gateway.mcp('well'))
  assert.deepEqual((await client.request('ping')).result, {})
  const all = await RawClient.open(gateway.mcp())
  assert.deepEqual((await all.request('ping')).result, {})
})

test('a fault that names no server hits the endpoint over all of them', async () => {
  const headers = { 'x-shaken': 'yes' }
  const all = await RawClient.open(gateway.mcp(), { headers })
  assert.deepEqual((await all.request('ping')).error, { code: -32000, message: 'Everywhere' })
  const well = await RawClient.open(gateway.mcp('well'), { headers })
  assert.deepEqual((await well.request('ping')).error, { code: -32000, message: 'Everywhere' })
  assert.deepEqual(await fatesOf('everywhere'), { surfaced: 2 })
})

test('stopping all faults releases held replies at once', async () => {
  const silent = await RawClient.open(gateway.mcp('silent'))
  const pong = silent.request('ping')
  const reply = initialize('hanging')
  await until('both requests are held', async () => {
    const { body } = await gateway.admin<{ faults: { name: string; concurrent: number }[] }>('/admin/chaos')
    const held = (name: string) => body.faults.find((fault) => fault.name === name)?.concurrent
    return held('silent') === 1 && held('hanging') === 1
  })
  gateway.program.signal('SIGUSR2')
  assert.deepEqual((await pong).result, {})
  const { status, headers } = await reply
  assert.equal(status, 200)
  assert.notEqual(headers.get('mcp-session-id'), null)
})
