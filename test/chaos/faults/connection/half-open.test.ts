import assert from 'node:assert/strict'
import { test } from 'node:test'
import { halfOpen } from '../../../../src/chaos/faults/connection/half-open.ts'
import type { Outcome } from '../../../../src/mesh/call.ts'
import { Cancellation } from '../../../../src/mesh/cancel.ts'
import { gatewayError } from '../../../../src/mesh/errors.ts'
import { notificationText } from '../../../../src/protocol/jsonrpc.ts'
import { TestChannel, toolCall } from '../../../support/caller.ts'
import { answering, testShot, type TestShotParts } from '../../../support/shot.ts'

const texts = [1, 2].map((progress) =>
  notificationText('notifications/progress', { progressToken: 1, progress }),
)
const answer = answering({ content: [] })

/** A server that streams two messages and answers at once. */
function setUp(parts?: TestShotParts) {
  const shot = testShot(parts)
  const channel = new TestChannel()
  const signal = new Cancellation()
  const call = toolCall('echo', {}, { channel, signal })
  const order: string[] = []
  const outcomes: Outcome[] = []
  let runs = 0
  const layer = halfOpen.layer(halfOpen.schema.parse({}), shot)
  const service = layer((sent) => {
    runs++
    sent.channel.open()
    for (const text of texts)
      void sent.channel
        .send({ text, value: JSON.parse(text) as Record<string, unknown> })
        ?.then(() => order.push('sent'))
    return answer(sent)
  })
  const ran = service(call).then((outcome) => {
    order.push('answered')
    outcomes.push(outcome)
  })
  return { shot, channel, signal, call, outcomes, order, ran, runs: () => runs }
}

for (const side of ['upstream', 'client'] as const) {
  test(`the server gets the call, and nothing comes back for a minute (${side})`, async () => {
    const { shot, channel, outcomes, order, runs } = setUp({ side })
    await shot.clock.advance(59_999)
    assert.deepEqual([runs(), outcomes.length, channel.received.length, channel.opened], [1, 0, 0, false])
    await shot.clock.advance(1)
    assert.equal(outcomes[0]?.kind, 'answered')
    assert.equal(channel.opened, true)
    assert.deepEqual(
      channel.received.map(({ message }) => message.text),
      texts,
    )
    assert.deepEqual(order, ['sent', 'sent', 'answered'])
    assert.deepEqual(shot.notes, [{ holdMs: 60_000 }])
  })
}

test('what was held back goes on unharmed and in order when the fault ends', async () => {
  const { shot, call, channel, order, outcomes, ran } = setUp()
  await shot.clock.advance(1_000)
  shot.release()
  await ran
  assert.deepEqual(order, ['sent', 'sent', 'answered'])
  assert.deepEqual(
    channel.received.map(({ message }) => message.text),
    texts,
  )
  assert.deepEqual(outcomes, [await answer(call)])
  assert.equal(shot.clock.pending, 0)
})

test('a caller that gives up waits no longer, and gets nothing any more', async () => {
  const { shot, signal, channel, outcomes, ran } = setUp()
  await shot.clock.advance(1_000)
  signal.abort(gatewayError('attempt_timeout', 'no answer within 1000 ms'))
  await ran
  assert.equal(outcomes[0]?.kind === 'failed' && outcomes[0].error.reason, 'attempt_timeout')
  assert.equal(channel.received.length, 0)
  assert.equal(shot.clock.pending, 0)
})

test('a reply does not wait behind a reader that is stuck once its caller has given up', async () => {
  const { shot, signal, channel, outcomes, ran } = setUp()
  channel.hold()
  await shot.clock.advance(60_000)
  assert.equal(outcomes.length, 0)
  signal.abort(gatewayError('cancelled', 'gone'))
  await ran
  assert.equal(outcomes[0]?.kind, 'failed')
})
