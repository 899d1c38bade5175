import { once } from 'node:events'
import { createServer, type RequestListener } from 'node:http'
import type { AddressInfo } from 'node:net'
import type { TestContext } from 'node:test'
import { CallSockets } from '../../src/upstreams/http/call-sockets.ts'
import { HttpWire } from '../../src/upstreams/http/http-wire.ts'
import { OneWayPosts } from '../../src/upstreams/http/one-way-posts.ts'
import { StreamConnections } from '../../src/upstreams/http/stream-connections.ts'

/** The wire to an HTTP server of the test, for the length of the test. */
export async function wireTo(
  t: TestContext,
  handle: RequestListener,
  connections = 16,
): Promise<{ wire: HttpWire; stop: () => void }> {
  const server = createServer(handle).listen(0, '127.0.0.1')
  await once(server, 'listening')
  const { port } = server.address() as AddressInfo
  const url = `http://127.0.0.1:${port}/mcp`
  const { origin } = new URL(url)
  const streams = new StreamConnections(origin, {})
  const timeouts = { headersTimeout: 300_000, bodyTimeout: 300_000 }
  const calls = new CallSockets(origin, { connections, ...timeouts, connect: {} })
  const oneWay = new OneWayPosts(origin, { connections })
  const stop = () => {
    server.close()
    server.closeAllConnections()
  }
  t.after(async () => {
    await Promise.all([calls.destroy(), oneWay.destroy(), streams.destroy()])
    stop()
  })
  const pools = { calls, oneWay, streams }
  return { wire: HttpWire.to({ url, headers: {}, agent: undefined }, pools), stop }
}

/** Headers of an event stream reply. */
export const eventStream = { 'content-type': 'text/event-stream' }
