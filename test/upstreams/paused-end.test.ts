import assert from 'node:assert/strict'
import { once } from 'node:events'
import { type AddressInfo, createServer, type Socket } from 'node:net'
import { type TestContext, test } from 'node:test'
import { Pool } from 'undici'
import { nextTurn } from '../../src/mesh/clock.ts'
import { connectorOf } from '../../src/wire/connector.ts'
import { HttpReply } from '../../src/upstreams/http/http-reply.ts'
import { until } from '../support/until.ts'
import { recorder } from './posted.ts'

const first = 'data: first\n\n'
const rest = 'data: last\n\n'

/**
 * Reads a reply whose server closes the connection while the first event is held; returns the outcome once nothing is
 * held.
 */
async function heldToTheEnd(t: TestContext, framing: string, end: (peer: Socket) => void) {
  const peers: Socket[] = []
  const server = createServer((peer) => {
    peers.push(peer)
    peer.once('data', () => {
      peer.write(`HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n${framing}\r\n\r\n${first}`)
    })
  }).listen(0, '127.0.0.1')
  await once(server, 'listening')
  const connections: Socket[] = []
  const connect = connectorOf()
  const { port } = server.address() as AddressInfo
  const pool = new Pool(`http://127.0.0.1:${port}`, {
    connect: (target, done) =>
      connect(target, (...connected) => {
        if (connected[1] !== null) connections.push(connected[1])
        done(...connected)
      }),
  })
  t.after(async () => {
    await pool.destroy()
    server.close()
  })
  const { sink, told, last, end: over, hold } = recorder()
  let release = () => {}
  hold(new Promise((resolve) => (release = resolve)))
  pool.dispatch({ method: 'POST', path: '/' }, new HttpReply(sink, { maxReply: 1_000 }))
  await until('the first event is held', () => told.includes('event first'))
  const [peer, connection] = [peers[0] as Socket, connections[0] as Socket]
  const before = connection.bytesRead
  peer.write(rest)
  await until('the rest of the reply has come', () => connection.bytesRead === before + rest.length)
  end(peer)
  await Promise.race([once(peer, 'close'), once(peer, 'finish')])
  for (let turn = 0; turn < 10; turn++) await nextTurn()
  // The last event is held too, so only the end of the connection is left to read.
  let releaseLast = () => {}
  hold(new Promise((resolve) => (releaseLast = resolve)))
  release()
  for (let turn = 0; turn < 10; turn++) await nextTurn()
  releaseLast()
  await over
  return { told, last }
}

for (const [name, framing] of [
  ['by the end of the connection', 'x-length: none'],
  ['by its length', `content-length: ${first.length + rest.length}`],
  [
    'by its length, of a connection that is to close',
    `connection: close\r\ncontent-length: ${first.length + rest.length}`,
  ],
] as const)
  test(`a reply that ends ${name} is read to its end, although it is held when the connection ends`, async (t) => {
    const { told } = await heldToTheEnd(t, framing, (peer) => peer.end())
    assert.deepEqual(told, ['opened text/event-stream', 'event first', 'event last', 'ended'])
  })

test('a reply that is held when its connection is reset fails, or ends with what has come', async (t) => {
  const { told } = await heldToTheEnd(t, 'connection: close', (peer) => peer.resetAndDestroy())
  assert.ok(['ended', 'failed upstream_disconnected'].includes(told.at(-1) as string), told.join(', '))
})

test('a connection that is there keeps nothing of the attempt to make it', async (t) => {
  const server = createServer().listen(0, '127.0.0.1')
  await once(server, 'listening')
  const { port } = server.address() as AddressInfo
  const target = { hostname: '127.0.0.1', host: '127.0.0.1', protocol: 'http:', port: String(port) }
  const connection = await new Promise<Socket>((resolve, reject) => {
    connectorOf()(target, (error, socket) => (error === null ? resolve(socket) : reject(error)))
  })
  t.after(() => {
    connection.destroy()
    server.close()
  })
  // The remaining listener notices the end while a reply is paused; undici's own would keep its timer and callback.
  assert.equal(connection.listenerCount('error'), 1)
})
