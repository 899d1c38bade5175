import assert from 'node:assert/strict'
import { once } from 'node:events'
import { createServer } from 'node:https'
import type { AddressInfo } from 'node:net'
import { connect } from 'node:net'
import { text } from 'node:stream/consumers'
import { after, test, type TestContext } from 'node:test'
import { setTimeout } from 'node:timers/promises'
import { armed, cleanUp, Gateway, type Json } from '../e2e/support/gateway.ts'
import { RawClient } from '../e2e/support/raw-client.ts'
import { closeServers, RawServer, sendResult } from '../e2e/support/raw-server.ts'
import { cert, key } from '../fixtures/tls.ts'
import { orBrokenOff } from '../support/broken-off.ts'
import { until } from '../support/until.ts'

after(async () => {
  await cleanUp()
  closeServers()
})

const LARGE = 'x'.repeat(20_000)

/** Starts a gateway whose only server answers every call with a text, and whose only fault hits every call. */
async function start(url: string, fault: Json, more: Json = {}): Promise<Gateway> {
  const gateway = await Gateway.start({
    gateway: { environment: 'test' },
    servers: { one: { url, era: 'legacy', ...more } },
    policies: { defaults: { retry: false, gate: false, overdue: false } },
    chaos: armed([{ name: 'it', match: { method: 'tools/call' }, ...fault }]),
  })
  await gateway.waitFor('up', 'one')
  return gateway
}

const server = () =>
  RawServer.start(({ message: { id, method } }, response) => {
    if (method !== 'tools/call') return false
    const result = { content: [{ type: 'text', text: LARGE }] }
    return sendResult(response, id, result)
  })

async function overTls(t: TestContext): Promise<string> {
  const secure = createServer({ cert, key }, (request, response) => {
    const taking = text(request).then((body) => {
      const { id, method } = JSON.parse(body || '{}') as { id?: unknown; method?: string }
      const serverInfo = { name: 'secure', version: '1' }
      const result =
        method === 'initialize'
          ? { protocolVersion: '2025-11-25', capabilities: { tools: {} }, serverInfo }
          : { tools: [], content: [{ type: 'text', text: LARGE }] }
      response.setHeader('content-type', 'application/json')
      response.end(id === undefined ? '' : JSON.stringify({ jsonrpc: '2.0', id, result }))
    })
    orBrokenOff(taking)
  })
  secure.listen(0, '127.0.0.1')
  await once(secure, 'listening')
  t.after(() => {
    secure.closeAllConnections()
    secure.close()
  })
  return `https://127.0.0.1:${(secure.address() as AddressInfo).port}/mcp`
}

for (const at of ['headers', { afterBytes: 30 }])
  test(`a connection with TLS is broken as well (${JSON.stringify(at)}), and the gateway goes on`, async (t) => {
    const gateway = await start(
      await overTls(t),
      { type: 'conn.reset', at },
      { tls: { rejectUnauthorized: false } },
    )
    const client = await RawClient.open(gateway.mcp('one'))
    const { error } = await client.call('any')
    assert.equal((error as { data: Json }).data.reason, 'upstream_disconnected')
    assert.ok((await client.request('tools/list')).result)
  })

test('a slow reply keeps its slot until it is written, and is complete at the end', async () => {
  const gateway = await start((await server()).url, {
    type: 'conn.slow_drip',
    side: 'client',
    chunk: 64,
    gap: '1s',
    maxConcurrent: 1,
  })
  const client = await RawClient.open(gateway.mcp('one'))
  const slow = client.call('any')
  const counts = async () =>
    (
      await gateway.admin<{ faults: { hits: number; overflow: number; concurrent: number }[] }>(
        '/admin/chaos',
      )
    ).body.faults[0]!
  await until('the reply trickles', async () => (await counts()).hits === 1)
  // A reply beyond `maxConcurrent` goes out at once.
  assert.ok(JSON.stringify(await client.call('any')).includes(LARGE))
  const { overflow, concurrent } = await counts()
  assert.deepEqual([overflow, concurrent], [1, 1])
  gateway.program.signal('SIGTERM')
  assert.ok(JSON.stringify(await slow).includes(LARGE))
  assert.deepEqual(await gateway.program.ended, { code: 0, signal: null })
})

test("a fault slows down a server that streams faster than the fault's rate", async () => {
  let written = 0
  const flooding = await RawServer.start(({ message: { method } }, response) => {
    if (method !== 'tools/call') return false
    response.writeHead(200, { 'content-type': 'text/event-stream' })
    const params = { progressToken: 'p', progress: 1, message: 'x'.repeat(100_000) }
    const event = `data: ${JSON.stringify({ jsonrpc: '2.0', method: 'notifications/progress', params })}\n\n`
    const pour = () => {
      while (!response.destroyed) {
        written += event.length
        if (!response.write(event)) return
      }
    }
    response.on('drain', pour)
    pour()
    return true
  })
  for (const side of ['client', 'upstream']) {
    written = 0
    const gateway = await start(flooding.url, { type: 'conn.bandwidth', kibPerSecond: 4, side })
    const { headers, url } = await RawClient.open(gateway.mcp('one'))
    const { hostname, port, pathname } = new URL(url)
    const params = { name: 'any', arguments: {}, _meta: { progressToken: 'p' } }
    const body = JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'tools/call', params })
    const head = Object.entries({
      host: `${hostname}:${port}`,
      'content-type': 'application/json',
      accept: 'application/json, text/event-stream',
      'content-length': String(body.length),
      ...headers,
    }).map(([name, value]) => `${name}: ${value}\r\n`)
    const socket = connect(Number(port), hostname)
    await once(socket, 'connect')
    socket.on('error', () => undefined)
    socket.resume()
    socket.write(`POST ${pathname} HTTP/1.1\r\n${head.join('')}\r\n${body}`)
    await until('the reply is being written', () => written > 0)
    // The writer has stopped when the count stays the same for a while.
    for (let before = -1; before !== written; await setTimeout(500)) before = written
    const { body: chaos } = await gateway.admin<{ faults: Json[] }>('/admin/chaos')
    const seen = JSON.stringify({ written, side, read: socket.bytesRead, left: socket.destroyed, chaos })
    assert.ok(written < 24 * 1024 ** 2, seen)
    socket.destroy()
    await gateway.program.kill()
  }
})
