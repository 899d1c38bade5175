import assert from 'node:assert/strict'
import type { ServerResponse } from 'node:http'
import { after, test } from 'node:test'
import { until } from '../support/until.ts'
import { cleanUp, Gateway, type Json } from './support/gateway.ts'
import { RawClient } from './support/raw-client.ts'
import { closeServers, RawServer, type Seen } from './support/raw-server.ts'

after(cleanUp)
after(closeServers)

const CHANGED = 'notifications/roots/list_changed'

/** Notifications of one session under way at a time. */
const OF_ONE = 2

test("no call or notification waits for another agent's slow notifications", async () => {
  // The server never acknowledges a notification.
  const server = await RawServer.start(({ message }) => message.method === CHANGED, ['echo'])
  const gateway = await Gateway.start({ servers: { raw: { url: server.url, trusted: true } } })
  await gateway.waitFor('up', 'raw')
  const url = gateway.mcp('raw')
  const [hostile, kind] = [await RawClient.open(url), await RawClient.open(url)]
  const change = async (client: RawClient) =>
    assert.equal((await client.post({ jsonrpc: '2.0', method: CHANGED })).status, 202)
  // More than the number of sockets for calls.
  for (let n = 0; n < 300; n++) await change(hostile)
  await until('as many notifications as allowed have come', () => server.of(CHANGED).length === OF_ONE)
  await change(kind)
  await until('the notification of the other agent has come', () => server.of(CHANGED).length === OF_ONE + 1)
  // The server's own answer: it has no such method.
  for (const client of [kind, hostile]) {
    const { error } = await client.request('tools/call', { name: 'echo', arguments: {} })
    assert.equal((error as { code: number }).code, -32601)
  }
  assert.equal(server.of(CHANGED).length, OF_ONE + 1)
})

test('undelivered notifications are counted by reason', async () => {
  let answer: (response: ServerResponse) => unknown = (response) => response.writeHead(503).end()
  const server = await RawServer.start(
    ({ message }, response) => message.method === CHANGED && Boolean(answer(response)),
    ['echo'],
  )
  const gateway = await Gateway.start({ servers: { raw: { url: server.url } } })
  await gateway.waitFor('up', 'raw')
  const lost = () => gateway.sums('breakwater_notifications_lost_total', 'reason', 'server="raw"')
  const client = await RawClient.open(gateway.mcp('raw'))
  // The server does not know the client before its first call.
  await client.request('tools/call', { name: 'echo', arguments: {} })
  const change = () => client.post({ jsonrpc: '2.0', method: CHANGED })
  await change()
  await until('the first loss is counted', async () => (await lost()).upstream_refused === 1)
  answer = (response) => response.socket?.destroy()
  await change()
  await until('the second loss is counted', async () => (await lost()).upstream_disconnected === 1)
  answer = (response) => response.writeHead(202).end()
  await change()
  await until('the third notification has come', () => server.of(CHANGED).length === 3)
  assert.deepEqual(await lost(), { upstream_refused: 1, upstream_disconnected: 1 })
})

test('no call waits because its server is slow to take cancellations', async () => {
  const CANCELLED = 'notifications/cancelled'
  const isSlow = ({ message: { params } }: Seen) => (params as Json | undefined)?.name === 'slow'
  // The server answers no call of this tool, and acknowledges no cancellation.
  const server = await RawServer.start(
    (seen) => isSlow(seen) || seen.message.method === CANCELLED,
    ['echo', 'slow'],
  )
  const gateway = await Gateway.start({
    servers: { raw: { url: server.url, trusted: true, connections: 4 } },
  })
  await gateway.waitFor('up', 'raw')
  const url = gateway.mcp('raw')
  const [hostile, kind] = [await RawClient.open(url), await RawClient.open(url)]
  for (let id = 1_000; id < 1_010; id++) {
    const params = { name: 'slow', arguments: {} }
    const call = hostile.post({ jsonrpc: '2.0', id, method: 'tools/call', params })
    await until('the server has the call', () => server.seen.filter(isSlow).length === id - 999)
    await hostile.post({ jsonrpc: '2.0', method: CANCELLED, params: { requestId: id } })
    await call
  }
  await until('two cancellations are on their way', () => server.of(CANCELLED).length === OF_ONE)
  const { error } = await kind.request('tools/call', { name: 'echo', arguments: {} })
  assert.equal((error as { code: number }).code, -32601)
  assert.equal(server.of(CANCELLED).length, OF_ONE)
})
