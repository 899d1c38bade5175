import assert from 'node:assert/strict'
import { after, test, type TestContext } from 'node:test'
import { fileURLToPath } from 'node:url'
import { until } from '../support/until.ts'
import { Agent } from './support/agent.ts'
import { bystand } from './support/bystander.ts'
import { CountingServer } from './support/counting.ts'
import { cleanUp, Gateway, type Json } from './support/gateway.ts'
import { ModernClient } from './support/modern-client.ts'
import { RawClient } from './support/raw-client.ts'
import { RawSocket } from './support/raw-socket.ts'
import { closeServers, RawServer } from './support/raw-server.ts'

const script = fileURLToPath(new URL('../fixtures/pouring-server.js', import.meta.url))

after(cleanUp)
after(closeServers)

/** Starts a gateway before a well-behaved server, and others. */
async function stage(servers: Json) {
  const kind = await CountingServer.start('legacy', 1)
  const gateway = await Gateway.start({ servers: { kind: { urls: kind.urls, trusted: true }, ...servers } })
  await gateway.waitFor('up', 'kind', ...Object.keys(servers))
  return gateway
}

const pouring = { command: process.execPath, args: [script] }

/** Keeps calling the well-behaved server while `flood` runs. */
async function beside(t: TestContext, gateway: Gateway, flood: () => Promise<unknown>): Promise<void> {
  const agent = await Agent.open('legacy', gateway.mcp('kind'))
  let calls = 0
  const call = async () => {
    const { kind } = await agent.call('read', { token: `read-${calls++}` })
    assert.equal(kind, 'result')
  }
  await call()
  t.diagnostic(await bystand(gateway, call, flood))
}

const pour = (line: string, count: number): Json => ({ line, count })

/** The gateway's own limit for a call, in milliseconds: a flood takes as long as the machine needs. */
const patient = { patienceMs: 60_000 }

test('a bystander is served while a child prints lines that are no messages', async (t) => {
  const gateway = await stage({ pouring })
  const agent = await Agent.open('legacy', gateway.mcp('pouring'))
  await beside(t, gateway, async () => {
    assert.equal((await agent.call('pour', pour('x', 100_000), patient)).kind, 'result')
  })
})

test('a bystander is served while a child repeats one notification to 50 listeners', async (t) => {
  const gateway = await stage({ pouring })
  const line = (method: string, params: Json = {}) => JSON.stringify({ jsonrpc: '2.0', method, params })
  const client = new ModernClient(gateway.mcp('pouring'))
  const wanted = { toolsListChanged: true, resourcesListChanged: true, resourceSubscriptions: ['a://1'] }
  const listeners = await Promise.all(Array.from({ length: 50 }, () => client.listen(wanted)))
  const agent = await Agent.open('legacy', gateway.mcp('pouring'))
  await beside(t, gateway, async () => {
    await agent.call('pour', pour(line('notifications/resources/list_changed'), 20_000))
    await agent.call('pour', pour(line('notifications/resources/updated', { uri: 'a://2' }), 20_000))
    await agent.call('pour', pour(line('notifications/resources/updated', { uri: 'a://1' }), 2_000))
  })
  await until('all listeners have all notifications', () =>
    listeners.every((reader) => reader.messages('notifications/resources/updated').length === 2_000),
  )
  for (const reader of listeners) {
    const changes = reader.messages('notifications/resources/list_changed').length
    assert.ok(changes >= 1 && changes <= 100, `${changes} of 20,000 equal notifications`)
    reader.drop()
  }
})

test('a bystander is served while a hundred subscriptions to a thousand resources each end at once', async (t) => {
  const gateway = await stage({ pouring })
  const client = new ModernClient(gateway.mcp('pouring'))
  const resourceSubscriptions = Array.from({ length: 1_000 }, (_, n) => `a://${n}`)
  const listeners = await Promise.all(
    Array.from({ length: 100 }, () => client.listen({ resourceSubscriptions })),
  )
  const asked = async () =>
    (await gateway.sums('breakwater_requests_total', 'result', 'server="pouring"')).returned ?? 0
  const isQuiet = async () => (await gateway.metric('breakwater_inflight', 'server="pouring"')) === 0
  await until('the server has all subscriptions', async () => (await asked()) >= 1_000 && isQuiet())
  const before = await asked()
  await beside(t, gateway, async () => {
    for (const reader of listeners) reader.drop()
    await until('all subscriptions are released', async () => (await asked()) >= before + 1_000 && isQuiet())
  })
  const given = (await asked()) - before
  assert.ok(given < 2_000, `${given} requests for 1,000 resources`)
})

test('a bystander is served while batches of pings are pipelined over many connections', async (t) => {
  const gateway = await stage({})
  const url = gateway.mcp('kind')
  const client = await RawClient.open(url, { version: '2025-03-26' })
  const pings = JSON.stringify(
    Array.from({ length: 100 }, (_, id) => ({ jsonrpc: '2.0', id, method: 'ping' })),
  )
  const headers = { ...client.headers, 'content-length': String(pings.length) }
  const sockets = await Promise.all(
    Array.from({ length: 20 }, () => RawSocket.open(url, headers, { localAddress: '127.0.0.2' })),
  )
  await beside(t, gateway, async () => {
    for (const socket of sockets) for (let n = 0; n < 60; n++) void socket.begin(pings)
    // Each connection gets pongs or a refusal, or is cut off.
    const isOver = ({ text, isClosed }: RawSocket) => isClosed || text.split('HTTP/1.1 ').length > 60
    await until('all connections are over', () => sockets.every(isOver))
  })
  for (const socket of sockets) socket.close()
})

test('a bystander is served while a server sends empty lines and comments', async (t) => {
  const streams = ['\r', '\n', ':\r', ':\n'].map((unit) => unit.repeat(2 * 1024 ** 2))
  const raw = await RawServer.start(
    ({ message }, response) => {
      if (message.method !== 'tools/call') return false
      response.writeHead(200, { 'content-type': 'text/event-stream' })
      const result = { content: [{ type: 'text', text: 'here' }] }
      const answer = `data: ${JSON.stringify({ jsonrpc: '2.0', id: message.id, result })}\n\n`
      response.end(streams.join('') + answer)
      return true
    },
    ['empty'],
  )
  const gateway = await stage({ raw: { url: raw.url } })
  const agent = await Agent.open('legacy', gateway.mcp('raw'))
  await beside(t, gateway, async () => {
    assert.equal((await agent.call('empty', {}, patient)).kind, 'result')
  })
})

test('a schema that would take long to compile is refused, said, and holds up nobody', async (t) => {
  const gateway = await stage({ pouring })
  const agent = await Agent.open('legacy', gateway.mcp('pouring'))
  const unchecked = async () => {
    const tools = (await gateway.server('pouring'))?.tools as { key: string; unchecked?: Json }[]
    return tools.find(({ key }) => key === 'wide')?.unchecked?.inputSchema
  }
  await beside(t, gateway, async () => {
    assert.equal((await agent.call('wide', {})).kind, 'result')
    await until('the reason is reported', async () => (await unchecked()) !== undefined)
  })
  assert.equal(await unchecked(), 'the schema asks for more than 2000 checks')
  assert.equal(await gateway.metric('breakwater_schemas', 'state="refused"'), 1)
  assert.equal((await agent.call('wide', {})).kind, 'result')
})
