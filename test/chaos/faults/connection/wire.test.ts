import assert from 'node:assert/strict'
import { once } from 'node:events'
import type { RequestListener, ServerResponse } from 'node:http'
import { test, type TestContext } from 'node:test'
import { halfOpen } from '../../../../src/chaos/faults/connection/half-open.ts'
import { reset } from '../../../../src/chaos/faults/connection/reset.ts'
import type { Outcome, Service } from '../../../../src/mesh/call.ts'
import { notificationText, resultText } from '../../../../src/protocol/jsonrpc.ts'
import { encodeEvent } from '../../../../src/protocol/sse.ts'
import { HttpExchange } from '../../../../src/upstreams/http/http-exchange.ts'
import { NOTHING_POSTED, Unread } from '../../../../src/upstreams/unread.ts'
import { TestChannel, toolCall } from '../../../support/caller.ts'
import { testShot } from '../../../support/shot.ts'
import { eventStream, wireTo } from '../../../support/wired.ts'

const progress = notificationText('notifications/progress', { progressToken: 1, progress: 1 })

/** A call over a real connection to a server that a test plays. */
async function overTheWire(t: TestContext, handle: RequestListener): Promise<Service> {
  const { wire } = await wireTo(t, handle)
  const { clock } = testShot()
  const options = {
    clock,
    maxReply: 1 << 20,
    ackMs: 1_000,
    underWay: new Set<HttpExchange>(),
    unread: new Unread(NOTHING_POSTED),
    stateless: true,
  }
  return async ({ id, message: { text }, signal, channel, record }) => {
    const request = { id, text, headers: undefined, signal, channel, record }
    const reading = await HttpExchange.run(wire, request, options)
    assert.notEqual(reading.kind, 'suspected_loss')
    return reading as Outcome
  }
}

test('a stream that is reset at its headers is dropped at once, while the server would go on', async (t) => {
  let streaming: ServerResponse | undefined
  const server = await overTheWire(t, (_, response) => {
    streaming = response.writeHead(200, eventStream)
    response.write(encodeEvent(progress))
  })
  const channel = new TestChannel()
  const layer = reset.layer(reset.schema.parse({}), testShot())
  const outcome = await layer(server)(toolCall('echo', {}, { channel }))
  assert.equal(outcome.kind === 'failed' && outcome.error.message, 'the connection broke (ECONNRESET)')
  assert.equal(outcome.kind === 'failed' && outcome.error.sent, true)
  assert.equal(channel.received.length, 0)
  assert.ok(streaming)
  if (!streaming.closed) await once(streaming, 'close')
})

test('a stream that is reset after some bytes has brought what lay before them', async (t) => {
  const server = await overTheWire(t, (_, response) => {
    response.writeHead(200, eventStream)
    for (let i = 0; i < 3; i++) response.write(encodeEvent(progress))
  })
  const channel = new TestChannel()
  const at = { afterBytes: 2 * Buffer.byteLength(progress) }
  const outcome = await reset.layer({ at }, testShot())(server)(toolCall('echo', {}, { channel }))
  assert.equal(outcome.kind === 'failed' && outcome.error.reason, 'upstream_disconnected')
  assert.equal(channel.received.length, 2)
})

test('behind a silent connection the server runs the call, and its stream comes whole when the silence ends', async (t) => {
  const call = toolCall('echo', {}, { channel: new TestChannel() })
  const channel = call.channel as TestChannel
  const served: string[] = []
  const server = await overTheWire(t, (request, response) => {
    served.push(request.method ?? '')
    response.writeHead(200, eventStream)
    response.end(encodeEvent(progress) + encodeEvent(resultText(call.id, '{"content":[]}')))
  })
  const shot = testShot()
  let reply: Promise<Outcome> | undefined
  const running = halfOpen.layer({ hold: 1_000 }, shot)((sent) => (reply = server(sent)))(call)
  await reply
  await shot.clock.advance(999)
  assert.deepEqual([served, channel.received.length], [['POST'], 0])
  await shot.clock.advance(1)
  assert.equal((await running).kind, 'answered')
  assert.equal(channel.received.length, 1)
})
