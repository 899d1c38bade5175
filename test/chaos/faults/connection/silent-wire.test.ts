import type { RequestListener } from 'node:http'
import { test, type TestContext } from 'node:test'
import { halfOpen } from '../../../../src/chaos/faults/connection.ts'
import type { Outcome, Service } from '../../../../src/mesh/call.ts'
import { notificationText, resultText } from '../../../../src/protocol/jsonrpc.ts'
import { encodeEvent } from '../../../../src/protocol/sse.ts'
import { HttpExchange, UnderWay } from '../../../../src/upstreams/http/http-exchange.ts'
import { NOTHING_POSTED, Unread } from '../../../../src/upstreams/unread.ts'
import { TestChannel, toolCall } from '../../../support/caller.ts'
import { testInjection } from '../../../support/injection.ts'
import { eventStream, wireTo } from '../../../support/wired.ts'

import assert from 'node:assert/strict'

const progress = notificationText('notifications/progress', { progressToken: 1, progress: 1 })

/** A call over a real connection to a server of the test. */
async function overTheWire(t: TestContext, handle: RequestListener): Promise<Service> {
  const { wire } = await wireTo(t, handle)
  const { clock } = testInjection()
  const options = {
    clock,
    maxReply: 1 << 20,
    ackMs: 1_000,
    underWay: new UnderWay(),
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

test('behind a silent connection the server runs the call, and its stream comes whole when the silence ends', async (t) => {
  const call = toolCall('echo', {}, { channel: new TestChannel() })
  const channel = call.channel as TestChannel
  const served: string[] = []
  const server = await overTheWire(t, (request, response) => {
    served.push(request.method ?? '')
    response.writeHead(200, eventStream)
    response.end(encodeEvent(progress) + encodeEvent(resultText(call.id, '{"content":[]}')))
  })
  const injection = testInjection()
  let reply: Promise<Outcome> | undefined
  const running = halfOpen.layer({ hold: 1_000, then: 'pass' }, injection)((sent) => (reply = server(sent)))(
    call,
  )
  await reply
  await injection.clock.advance(999)
  assert.deepEqual([served, channel.received.length], [['POST'], 0])
  await injection.clock.advance(1)
  assert.equal((await running).kind, 'answered')
  assert.equal(channel.received.length, 1)
})
