import assert from 'node:assert/strict'
import { once } from 'node:events'
import { connect } from 'node:net'
import { after, test } from 'node:test'
import { nextTurn } from '../../src/mesh/clock.ts'
import { until } from '../support/until.ts'
import { bystand } from '../e2e/support/bystander.ts'
import { EventReader } from '../e2e/support/event-reader.ts'
import { cleanUp, Gateway, type Json } from '../e2e/support/gateway.ts'
import { headersOf, ModernClient } from '../e2e/support/modern-client.ts'
import { RawClient } from '../e2e/support/raw-client.ts'
import { closeServers, RawServer } from '../e2e/support/raw-server.ts'
import { stdioToolbox } from '../e2e/support/toolbox.ts'

/** Clients per era. */
const CLIENTS = 50

const accept = 'application/json, text/event-stream'

after(async () => {
  await cleanUp()
  closeServers()
})

test("a hundred clients that vanish in mid-stream end their streams at the server, and no call gets another call's answer", async () => {
  let [open, most] = [0, 0]
  const server = await RawServer.start(
    ({ message: { id, method, params } }, response) => {
      if (method !== 'tools/call') return false
      const { arguments: given, _meta } = params as {
        arguments: { who: string }
        _meta?: { progressToken?: unknown }
      }
      const { progressToken } = _meta ?? {}
      const told = { progressToken, progress: 1, message: given.who }
      const notification = { jsonrpc: '2.0', method: 'notifications/progress', params: told }
      response.writeHead(200, { 'content-type': 'text/event-stream' })
      response.write(`data: ${JSON.stringify(notification)}\n\n`)
      most = Math.max(most, ++open)
      response.once('close', () => open--)
      // Clients that stay get their own answer in the end.
      const result = { content: [{ type: 'text', text: given.who }] }
      if (given.who.startsWith('stays'))
        response.end(`data: ${JSON.stringify({ jsonrpc: '2.0', id, result })}\n\n`)
      return true
    },
    ['tell'],
  )
  const gateway = await Gateway.start({
    servers: { telling: { url: server.url }, quiet: stdioToolbox() },
    policies: { defaults: { bulkhead: { concurrent: 8 * CLIENTS } } },
  })
  await gateway.waitFor('up', 'telling', 'quiet')
  const bystander = await RawClient.open(gateway.mcp('quiet'))
  const call = async () => assert.equal(await bystander.say('echo', { text: 'here' }), 'here')
  await call()

  await bystand(gateway, call, async () => {
    const legacy = await Promise.all(
      Array.from({ length: CLIENTS }, () => RawClient.open(gateway.mcp('telling'))),
    )
    const modern = new ModernClient(gateway.mcp('telling'))
    const readers = await Promise.all([
      ...legacy.map((client, who) => {
        const params = { name: 'tell', arguments: { who: `legacy ${who}` }, _meta: { progressToken: who } }
        return client.stream({ jsonrpc: '2.0', id: who, method: 'tools/call', params })
      }),
      ...legacy.map((_, who) => {
        const request = modern.request('tools/call', { name: 'tell', arguments: { who: `modern ${who}` } })
        const _meta = { ...modern.meta, progressToken: who }
        const body = { ...request, params: { ...(request.params as Json), _meta } }
        const headers = { ...headersOf(body), 'content-type': 'application/json', accept }
        return EventReader.open(modern.url, { method: 'POST', body: JSON.stringify(body), headers })
      }),
    ])
    await until('all readers have an event', () => readers.every(({ events }) => events.length > 0))
    for (const [index, reader] of readers.entries()) {
      const who = index < CLIENTS ? `legacy ${index}` : `modern ${index - CLIENTS}`
      assert.deepEqual(
        reader.messages().map(({ params }) => (params as { message: string }).message),
        [who],
      )
      reader.drop()
    }
    // A session and its calls outlive its connection; ending the session ends the calls.
    const answers = await Promise.all(
      legacy.map((client, who) => client.say('tell', { who: `stays ${who}` })),
    )
    assert.deepEqual(
      answers,
      legacy.map((_, who) => `stays ${who}`),
    )
    await Promise.all(legacy.map((client) => client.leave()))
  })
  assert.ok(most >= 2 * CLIENTS, `only ${most} streams at once`)
  await until('no stream is left at the server', () => open === 0)
  await until('no call is left', async () => {
    const underWay = await gateway.sums('breakwater_inflight', 'server', 'telling')
    return Object.keys(underWay).length === 0
  })
})

test('clients of the modern era that vanish at any moment while their large requests are read leave no call behind', async () => {
  let open = 0
  const server = await RawServer.start(
    ({ message: { method } }, response) => {
      if (method !== 'tools/call') return false
      open++
      response.once('close', () => open--)
      return true
    },
    ['hold'],
  )
  const gateway = await Gateway.start({ servers: { holding: { url: server.url } } })
  await gateway.waitFor('up', 'holding')
  const modern = new ModernClient(gateway.mcp('holding'))
  const { hostname, port, host, pathname } = new URL(modern.url)
  // Large in bytes, so the body waits for its turn; not large in characters.
  const request = modern.request('tools/call', { name: 'hold', arguments: { text: '€'.repeat(33_000) } })
  const body = JSON.stringify(request)
  const headers = {
    host,
    accept,
    'content-type': 'application/json',
    'content-length': Buffer.byteLength(body),
    ...headersOf(request),
  }
  const head = Object.entries(headers).map(([name, value]) => `${name}: ${value}\r\n`)
  for (let client = 0; client < 2 * CLIENTS; client++) {
    const socket = connect(Number(port), hostname)
    await once(socket, 'connect')
    await new Promise((taken) =>
      socket.write(`POST ${pathname} HTTP/1.1\r\n${head.join('')}\r\n${body}`, taken),
    )
    for (let turn = 0; turn < client % 12; turn++) await nextTurn()
    socket.resetAndDestroy()
  }
  await until('no call is left at the server', () => open === 0)
  await until('no call is left', async () => {
    const underWay = await gateway.sums('breakwater_inflight', 'server', 'holding')
    return Object.keys(underWay).length === 0
  })
})
