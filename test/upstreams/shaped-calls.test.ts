import assert from 'node:assert/strict'
import { once } from 'node:events'
import { createServer, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { type TestContext, test } from 'node:test'
import { Pool } from 'undici'
import { Cancellation } from '../../src/mesh/cancel.ts'
import type { WireShape } from '../../src/mesh/wire-shape.ts'
import { connectorOf } from '../../src/wire/connector.ts'
import { HttpReply } from '../../src/upstreams/http/http-reply.ts'
import { ShapedCalls } from '../../src/wire/shaped-connection.ts'
import { ManualClock } from '../support/manual-clock.ts'
import { until } from '../support/until.ts'
import { LIMIT, recorder } from './posted.ts'

/** Shaped calls at a server that holds its replies until released; the gateway may open two connections. */
async function start(t: TestContext) {
  const held: ServerResponse[] = []
  let connections = 0
  const server = createServer((_, response) => void held.push(response)).listen(0, '127.0.0.1')
  server.on('connection', (socket) => {
    connections++
    socket.once('close', () => connections--)
  })
  await once(server, 'listening')
  const { port } = server.address() as AddressInfo
  const calls = new ShapedCalls(`http://127.0.0.1:${port}`, 2, {}, {})
  t.after(async () => {
    await calls.destroy()
    server.close()
    server.closeAllConnections()
  })
  const send = () => {
    const recorded = recorder()
    const done = { bytes: 0, messages: 0, hasHappened: false }
    const shape: WireShape = { clock: new ManualClock(), released: new Cancellation(), done }
    calls.dispatch({ method: 'POST', path: '/' }, new HttpReply(recorded.sink, { maxReply: LIMIT }), [shape])
    return recorded
  }
  return { calls, held, send, connections: () => connections }
}

test('no more connections are open for shaped calls than for others, and those that wait get theirs in turn', async (t) => {
  const { held, send, connections } = await start(t)
  const sent = [1, 2, 3, 4, 5].map(send)
  for (let answered = 0; answered < sent.length; answered++) {
    await until('the next call has come', () => held.length >= Math.min(sent.length, answered + 2))
    assert.ok(connections() <= 2, `${connections()} connections`)
    held[answered]!.end('{}')
    await sent[answered]!.end
  }
  assert.deepEqual(
    sent.map(({ told }) => told),
    Array.from(sent, () => ['body']),
  )
  await until('no connection is left', () => connections() === 0)
})

test('when the pools of a server are closed its shaped calls end, those that wait as well', async (t) => {
  const { calls, held, send, connections } = await start(t)
  const sent = [1, 2, 3].map(send)
  await until('two calls have come', () => held.length === 2)
  await calls.destroy()
  await Promise.all(sent.map(({ end }) => end))
  assert.deepEqual(
    sent.map(({ last }) => last.error?.sent),
    [true, true, false],
  )
  await until('no connection is left', () => connections() === 0)
})

test('a call to a closed port fails, shaped or not, and leaves nothing behind', async () => {
  const server = createServer().listen(0, '127.0.0.1')
  await once(server, 'listening')
  const origin = `http://127.0.0.1:${(server.address() as AddressInfo).port}`
  await new Promise((closed) => server.close(closed))
  const done = { bytes: 0, messages: 0, hasHappened: false }
  const shape: WireShape = { clock: new ManualClock(), released: new Cancellation(), done }
  const shaped = new ShapedCalls(origin, 1, {}, {})
  const plain = new Pool(origin, { connect: connectorOf() })
  const request = { method: 'POST', path: '/' } as const
  const sent = [recorder(), recorder(), recorder()]
  const replies = sent.map(({ sink }) => new HttpReply(sink, { maxReply: LIMIT }))
  shaped.dispatch(request, replies[0]!, [shape])
  shaped.dispatch(request, replies[1]!, [shape])
  plain.dispatch(request, replies[2]!)
  await Promise.all(sent.map(({ end }) => end))
  for (const { last } of sent) assert.equal(last.error?.reason, 'upstream_unavailable')
  await Promise.all([shaped.destroy(), plain.destroy()])
})
