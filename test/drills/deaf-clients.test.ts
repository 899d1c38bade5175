import assert from 'node:assert/strict'
import type { ServerResponse } from 'node:http'
import { afterEach, test } from 'node:test'
import { until } from '../support/until.ts'
import { bystand } from '../e2e/support/bystander.ts'
import { type DeafClient, postDeaf } from '../e2e/support/deaf-client.ts'
import { cleanUp, Gateway, type Json } from '../e2e/support/gateway.ts'
import { headersOf, ModernClient } from '../e2e/support/modern-client.ts'
import { heldBy, withProbe } from '../e2e/support/memory.ts'
import { RawClient } from '../e2e/support/raw-client.ts'
import { closeServers, RawServer } from '../e2e/support/raw-server.ts'
import { stdioToolbox } from '../e2e/support/toolbox.ts'

const MIB = 1024 ** 2

/** Clients per era, each with its own stream. */
const CLIENTS = 20

/** Maximum memory per client, in bytes. */
const MAX_HELD = MIB

// The server keeps pouring for legacy clients that have left, so no other test runs at the same time.
afterEach(async () => {
  await cleanUp()
  closeServers()
})

/** Sends progress as fast as the client reads, until the client leaves. */
function endless(response: ServerResponse, progressToken: unknown): void {
  const message = 'x'.repeat(4_096)
  let progress = 0
  const pour = () => {
    let hasRoom = true
    while (hasRoom && !response.destroyed) {
      const params = { progressToken, progress: ++progress, message }
      const event = { jsonrpc: '2.0', method: 'notifications/progress', params }
      hasRoom = response.write(`data: ${JSON.stringify(event)}\n\n`)
    }
  }
  response.writeHead(200, { 'content-type': 'text/event-stream' })
  response.on('drain', pour)
  pour()
}

test('clients that never read a stream of events without end cost at most 1 MB each, and others are served', async (t) => {
  let begun = 0
  const server = await RawServer.start(
    ({ message: { method, params } }, response) => {
      if (method !== 'tools/call') return false
      begun++
      endless(response, (params as { _meta: Json })._meta.progressToken)
      return true
    },
    ['pour'],
  )
  const gateway = await Gateway.start(
    {
      servers: { pouring: { url: server.url }, quiet: stdioToolbox() },
      policies: { defaults: { bulkhead: { concurrent: 8 * CLIENTS } } },
    },
    withProbe(),
  )
  await gateway.waitFor('up', 'pouring', 'quiet')
  const bystander = await RawClient.open(gateway.mcp('quiet'))
  const url = gateway.mcp('pouring')
  const sessions = await Promise.all(Array.from({ length: CLIENTS }, () => RawClient.open(url)))
  const before = await heldBy(gateway)
  const deaf: DeafClient[] = []
  await bystand(
    gateway,
    async () => assert.equal(await bystander.say('echo', { text: 'here' }), 'here'),
    async () => {
      const params = (n: number) => ({ name: 'pour', arguments: {}, _meta: { progressToken: n } })
      for (const [n, { headers }] of sessions.entries()) {
        deaf.push(
          await postDeaf(url, headers, { jsonrpc: '2.0', id: n, method: 'tools/call', params: params(n) }),
        )
        const modern = new ModernClient(url)
        const request = modern.request('tools/call', params(n))
        const _meta = { ...modern.meta, progressToken: n }
        const body = { ...request, params: { ...params(n), _meta } }
        deaf.push(await postDeaf(url, headersOf(body), body))
      }
      await until('all clients are being answered', () => begun === 2 * CLIENTS)
    },
  )
  let last = -1
  await until('memory has stopped growing', async () => {
    const now = await heldBy(gateway)
    const isStill = Math.abs(now - last) < 64 * 1024
    last = now
    return isStill
  })
  assert.equal(await bystander.say('echo', { text: 'here' }), 'here')
  const each = (last - before) / deaf.length
  t.diagnostic(`${Math.round(each / 1024)} KiB for each of ${deaf.length}`)
  assert.ok(each <= MAX_HELD, `${Math.round(each / 1024)} KiB for each of ${deaf.length}`)
  for (const client of deaf) client.close()
})

/** Size of one reply, in bytes: more than a loopback connection can buffer. */
const LARGE = 6 * MIB

test('clients that never read a large reply cost at most 1 MB each when they have taken nothing for long enough, and others are served', async (t) => {
  const text = 'x'.repeat(LARGE)
  let answered = 0
  const server = await RawServer.start(
    ({ message: { id, method } }, response) => {
      if (method !== 'tools/call') return false
      const result = { content: [{ type: 'text', text }] }
      answered++
      response.writeHead(200, { 'content-type': 'application/json' })
      response.end(JSON.stringify({ jsonrpc: '2.0', id, result }))
      return true
    },
    ['large'],
  )
  const gateway = await Gateway.start(
    {
      servers: { large: { url: server.url }, quiet: stdioToolbox() },
      // Enough memory that no client is cut off for another; short enough that the test does not take half a minute.
      gateway: { limits: { memory: '2560MiB', stalled: '5s' } },
    },
    withProbe(),
  )
  await gateway.waitFor('up', 'large', 'quiet')
  const bystander = await RawClient.open(gateway.mcp('quiet'))
  const url = gateway.mcp('large')
  const sessions = await Promise.all(Array.from({ length: CLIENTS }, () => RawClient.open(url)))
  const before = await heldBy(gateway)
  const deaf: DeafClient[] = []
  let most = 0
  /**
   * True when every client was given up. On a busy machine the first are given up before the last get their replies.
   */
  const look = async () => {
    const bytes = (await gateway.metric('breakwater_unread_bytes')) ?? 0
    const { stalled = 0 } = await gateway.sums('breakwater_unread_closed_total', 'cause', '')
    most = Math.max(most, bytes / Math.max(1, answered - stalled))
    return stalled === CLIENTS
  }
  await bystand(
    gateway,
    async () => assert.equal(await bystander.say('echo', { text: 'here' }), 'here'),
    async () => {
      for (const [n, { headers }] of sessions.entries()) {
        const call = { jsonrpc: '2.0', id: n, method: 'tools/call', params: { name: 'large', arguments: {} } }
        deaf.push(await postDeaf(url, headers, call))
        await look()
      }
      await until('all clients were given up', look)
    },
  )
  const each = ((await heldBy(gateway)) - before) / CLIENTS
  const inKiB = (bytes: number) => `${Math.round(bytes / 1024)} KiB`
  t.diagnostic(`${inKiB(most)} waited for each of ${CLIENTS} at most, ${inKiB(each)} are held in the end`)
  assert.ok(most > MAX_HELD, `only ${inKiB(most)} waited for each client`)
  assert.ok(each <= MAX_HELD, `${inKiB(each)} for each of ${CLIENTS}`)
  for (const client of deaf) client.close()
})
