import assert from 'node:assert/strict'
import { lookup } from 'node:dns/promises'
import { once } from 'node:events'
import { IncomingMessage, type RequestListener, type ServerResponse } from 'node:http'
import { connect, type AddressInfo } from 'node:net'
import { test, type TestContext } from 'node:test'
import Fastify from 'fastify'
import { drained } from '../../../src/downstream/http/event-stream.ts'
import { Quotas, type QuotaLimit, type Shares } from '../../../src/downstream/limits/quotas.ts'
import { createBoundedServer, MAX_PIPELINED } from '../../../src/downstream/http/server.ts'
import { listenAt } from '../../../src/gateway/planes.ts'
import { defaultLimits } from '../../support/default-limits.ts'
import { holdPipelined } from '../../support/held-responses.ts'
import { until } from '../../support/until.ts'

test('a response that waits for another one on its connection hears that its client has left', async (t) => {
  const { responses, client } = await holdPipelined(t, 3)
  const closed: number[] = []
  responses.forEach((response, index) => response.on('close', () => closed.push(index)))
  responses[1]?.write('x'.repeat(1024 ** 2))
  const mayGoOn = drained(responses[1]!)
  client.destroy()
  await mayGoOn
  await until('all responses have heard of the close', () => closed.length === 3)
  assert.deepEqual(closed.toSorted(), [0, 1, 2])
  assert.deepEqual(
    responses.map(({ destroyed }) => destroyed),
    [true, true, true],
  )
})

test('each response of a connection hears once that it is over', async (t) => {
  const { responses, client } = await holdPipelined(t, 3)
  const closed: number[] = []
  responses.forEach((response, index) => response.on('close', () => closed.push(index)))
  client.resume()
  responses[1]?.end('second')
  responses[0]?.end('first')
  await until('two responses are sent', () => closed.length === 2)
  client.destroy()
  await until('all responses are over', () => closed.length === 3)
  assert.deepEqual(closed, [0, 1, 2])
})

const request = 'GET / HTTP/1.1\r\nhost: a\r\n\r\n'

/** A server with these limits, and connections counting their bytes read. */
async function setUp(t: TestContext, listener: RequestListener, shares: Partial<Shares> = {}) {
  const refused: QuotaLimit[] = []
  const quotas = new Quotas({ ...defaultLimits.shares, ...shares }, (limit) => refused.push(limit))
  const wrote: ServerResponse[] = []
  const unread = { wrote: (response: ServerResponse) => void wrote.push(response) }
  const server = createBoundedServer(listener, { quotas, unread })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  t.after(() => {
    server.closeAllConnections()
    server.close()
  })
  const { port } = server.address() as AddressInfo
  const open = (localAddress = '127.0.0.1') => {
    const socket = connect({ port, host: '127.0.0.1', localAddress })
    const peer = { socket, text: '', isClosed: false }
    t.after(() => socket.destroy())
    socket.on('error', () => undefined)
    socket.on('data', (chunk: Buffer) => (peer.text += chunk.toString('latin1')))
    socket.once('close', () => (peer.isClosed = true))
    return peer
  }
  return { quotas, refused, wrote, open }
}

test('a connection with too many requests behind one that takes long is closed, and nothing of them is kept', async (t) => {
  let taken = 0
  let over = 0
  const { quotas, refused, open } = await setUp(t, (_, response) => {
    taken++
    response.on('close', () => over++)
  })
  const patient = open()
  patient.socket.write(request.repeat(MAX_PIPELINED + 1))
  await until('all requests are taken', () => taken === MAX_PIPELINED + 1)
  assert.equal(quotas.pipelined.of('127.0.0.1'), MAX_PIPELINED)
  assert.equal(patient.isClosed, false)
  patient.socket.write(request)
  await until('the connection is closed', () => patient.isClosed && over === taken)
  assert.deepEqual(
    [refused, quotas.pipelined.total, quotas.connections.total],
    [['pipelined_per_connection'], 0, 0],
  )
})

test('a packet with many requests yields only as many as may wait, and the rest is not read', async (t) => {
  let taken = 0
  const { quotas, refused, open } = await setUp(t, (_, response) => {
    taken++
    response.end('x')
  })
  // Node builds a message object per request and adds its headers there, so this counts the requests read.
  const reader = IncomingMessage.prototype as IncomingMessage & { _addHeaderLines(): void }
  const { mock: read } = t.mock.method(reader, '_addHeaderLines')
  const peer = open()
  peer.socket.write(request.repeat(2_000))
  await until('the connection is closed', () => peer.isClosed)
  assert.equal(taken, MAX_PIPELINED + 1)
  assert.ok(read.callCount() > taken && read.callCount() <= taken + 3, `${read.callCount()} requests read`)
  assert.deepEqual(refused, ['pipelined_per_connection'])
  await until('no request is left', () => quotas.pipelined.total === 0)
  const other = open()
  other.socket.write(request.repeat(20))
  await until('all requests are answered', () => other.text.split('HTTP/1.1 200').length === 21)
})

for (const [what, status, text] of [
  ['without a host', 400, 'GET / HTTP/1.1\r\n\r\n'],
  ['for two hosts', 400, 'GET / HTTP/1.1\r\nHost: a\r\nhost: b\r\n\r\n'],
  ['for the same host twice', 400, 'GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n'],
  ['that expect what there is not', 417, 'GET / HTTP/1.1\r\nhost: a\r\nexpect: x\r\n\r\n'],
] as const) {
  test(`requests ${what} are refused, and those that wait are bounded like all others`, async (t) => {
    let taken = 0
    const { quotas, refused, open } = await setUp(t, () => taken++)
    const peer = open()
    peer.socket.write(text)
    await until('the request is refused', () => peer.text.startsWith(`HTTP/1.1 ${status}`))
    const hoarder = open()
    hoarder.socket.write(request + text.repeat(MAX_PIPELINED + 1))
    await until('the connection is closed', () => hoarder.isClosed)
    assert.deepEqual([taken, refused], [1, ['pipelined_per_connection']])
    await until('no request is left', () => quotas.pipelined.total === 0)
  })
}

test('the requests that wait on all connections of a client are bounded, and those of others have room', async (t) => {
  let taken = 0
  const { quotas, refused, open } = await setUp(t, () => taken++, {
    pipelined: { max: 4_096, perClient: 10 },
  })
  open().socket.write(request.repeat(9))
  await until('all requests are taken', () => taken === 9)
  const more = open()
  more.socket.write(request.repeat(4))
  await until('the connection is closed', () => more.isClosed)
  assert.deepEqual(refused, ['pipelined_per_client'])
  taken = 0
  open('127.0.0.2').socket.write(request.repeat(9))
  await until('the requests of another client are taken', () => taken === 9)
  assert.equal(quotas.pipelined.of('127.0.0.2'), 8)
})

test('a client that has all its connections open is closed at once, others are not, and a new share holds at once', async (t) => {
  const { quotas, refused, open } = await setUp(t, (_, response) => response.end('x'), {
    connections: { max: 6, perClient: 3 },
  })
  const isServed = async (address: string) => {
    const peer = open(address)
    peer.socket.write(request)
    await until('the connection has an answer, or is closed', () => peer.isClosed || peer.text !== '')
    return !peer.isClosed
  }
  const served = []
  for (let n = 0; n < 5; n++) served.push(await isServed('127.0.0.1'))
  assert.deepEqual(served, [true, true, true, false, false])
  for (let n = 0; n < 3; n++) assert.ok(await isServed('127.0.0.2'))
  assert.equal(await isServed('127.0.0.3'), false)
  assert.deepEqual(refused, ['connections_per_client', 'connections_per_client', 'connections'])
  quotas.tune({ ...defaultLimits.shares, connections: { max: 20, perClient: 4 } })
  assert.deepEqual([await isServed('127.0.0.1'), await isServed('127.0.0.1')], [true, false])
})

test('an unread reply is noticed, whatever answers the request', async (t) => {
  const { wrote, open } = await setUp(t, (_, response) => response.end('x'.repeat(20 * 1024 ** 2)))
  const { socket } = open()
  socket.pause()
  socket.write(request)
  await until('the unread reply is noticed', () => wrote.length === 1)
})

test('a server on localhost has one limit for all addresses of it', async (t) => {
  const quotas = new Quotas(defaultLimits.shares, () => undefined)
  const guards = { quotas, unread: { wrote: () => undefined } }
  const app = Fastify({
    serverFactory: (listener) => createBoundedServer(listener, guards),
    forceCloseConnections: true,
  })
  t.after(() => app.close())
  const { port } = new URL(await listenAt({ host: 'localhost', port: 0 }, app, 'test'))
  const addresses = await lookup('localhost', { all: true })
  for (const { address } of addresses) {
    const socket = connect({ port: Number(port), host: address })
    t.after(() => socket.destroy())
    await once(socket, 'connect')
  }
  await until('all connections are counted', () => quotas.connections.total === addresses.length)
})
