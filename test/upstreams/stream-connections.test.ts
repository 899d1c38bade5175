import assert from 'node:assert/strict'
import { once } from 'node:events'
import { createServer, type ServerResponse } from 'node:http'
import type { AddressInfo, Socket } from 'node:net'
import { type TestContext, test } from 'node:test'
import { nextTurn } from '../../src/mesh/clock.ts'
import { connectorOf } from '../../src/wire/connector.ts'
import { HttpReply } from '../../src/upstreams/http/http-reply.ts'
import { StreamConnections } from '../../src/upstreams/http/stream-connections.ts'
import { eventStream } from '../support/wired.ts'
import { until } from '../support/until.ts'
import { LIMIT, recorder } from './posted.ts'

/** Streams the server ends on request, and all connections ever opened. */
async function start(t: TestContext) {
  const streams: ServerResponse[] = []
  const sockets: Socket[] = []
  const server = createServer((_, response) => {
    response.writeHead(200, eventStream)
    response.flushHeaders()
    streams.push(response)
  }).listen(0, '127.0.0.1')
  server.on('connection', (socket) => sockets.push(socket))
  await once(server, 'listening')
  const { port } = server.address() as AddressInfo
  const options = { headersTimeout: 5_000, bodyTimeout: 0, connect: connectorOf() }
  const connections = new StreamConnections(`http://127.0.0.1:${port}`, options)
  const stop = () => {
    server.close()
    server.closeAllConnections()
  }
  t.after(async () => {
    await connections.destroy()
    stop()
  })
  const ask = () => {
    const recorded = recorder()
    connections.dispatch({ method: 'GET', path: '/' }, new HttpReply(recorded.sink, { maxReply: LIMIT }))
    return recorded
  }
  return { connections, streams, sockets, ask, stop }
}

test('streams that are open at once have a connection each', async (t) => {
  const { streams, sockets, ask } = await start(t)
  for (let index = 0; index < 5; index++) ask()
  await until('all streams are open', () => streams.length === 5)
  assert.equal(sockets.length, 5)
})

test('a stream that follows upon one which the server has ended in order goes over its connection', async (t) => {
  const { streams, sockets, ask } = await start(t)
  const first = ask()
  await until('the first stream is open', () => streams.length === 1)
  streams[0]!.end()
  await first.end
  // undici frees its connection a little later.
  for (let turn = 0; turn < 10; turn++) await nextTurn()
  ask()
  await until('the second stream is open', () => streams.length === 2)
  assert.equal(sockets.length, 1)
})

test('a stream that follows upon one whose connection broke has a connection of its own', async (t) => {
  const { streams, sockets, ask } = await start(t)
  const first = ask()
  await until('the first stream is open', () => streams.length === 1)
  sockets[0]!.resetAndDestroy()
  await first.end
  const second = ask()
  await until('the second stream is open', () => streams.length === 2)
  assert.equal(sockets.length, 2)
  streams[1]!.end('data: x\n\n')
  await second.end
  assert.ok(second.told.includes('event x'))
})

test('a server that is not there fails a stream, and the next one is tried anew', async (t) => {
  const { ask, stop } = await start(t)
  stop()
  for (const each of [ask(), ask()]) {
    await each.end
    assert.match(String(each.told), /upstream_unavailable/)
  }
})

test('closing the connections ends open streams, and no stream begins any more', async (t) => {
  const { connections, streams, sockets, ask } = await start(t)
  const open = ask()
  await until('the stream is open', () => streams.length === 1)
  await connections.destroy()
  await open.end
  const late = ask()
  await late.end
  assert.match(String(late.told), /upstream_unavailable/)
  assert.equal(sockets.length, 1)
})
