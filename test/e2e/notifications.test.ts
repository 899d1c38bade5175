import assert from 'node:assert/strict'
import { after, test } from 'node:test'
import { until } from '../support/until.ts'
import { cleanUp, Gateway } from './support/gateway.ts'
import { RawClient } from './support/raw-client.ts'
import { closeServers, RawServer } from './support/raw-server.ts'

after(cleanUp)
after(closeServers)

const CHANGED = 'notifications/roots/list_changed'

test('no call waits because its server is slow to take notifications, of whomever', async () => {
  // It never acknowledges one.
  const server = await RawServer.start(({ message }) => message.method === CHANGED, ['echo'])
  const gateway = await Gateway.start({ servers: { raw: { url: server.url, trusted: true } } })
  await gateway.waitFor('up', 'raw')
  const url = gateway.mcp('raw')
  const [hostile, kind] = [await RawClient.open(url), await RawClient.open(url)]
  // More than there are sockets for calls.
  for (let n = 0; n < 300; n++)
    assert.equal((await hostile.post({ jsonrpc: '2.0', method: CHANGED })).status, 202)
  await until('as many as may be on their way have come', () => server.of(CHANGED).length === 16)
  // The server's own answer: it has no such method.
  for (const client of [kind, hostile]) {
    const { error } = await client.request('tools/call', { name: 'echo', arguments: {} })
    assert.equal((error as { code: number }).code, -32601)
  }
  assert.equal(server.of(CHANGED).length, 16)
})
