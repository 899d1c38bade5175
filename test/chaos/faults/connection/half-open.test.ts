import { test } from 'node:test'
import { halfOpen } from '../../../../src/chaos/faults/connection.ts'
import type { Outcome } from '../../../../src/mesh/call.ts'
import { Cancellation } from '../../../../src/mesh/cancel.ts'
import { gatewayError } from '../../../../src/mesh/errors.ts'
import { notificationText } from '../../../../src/protocol/jsonrpc.ts'
import { TestChannel, toolCall } from '../../../support/caller.ts'
import { answering, testInjection, type TestInjectionParts } from '../../../support/injection.ts'

import assert from 'node:assert/strict'

const texts = [1, 2].map((progress) =>
  notificationText('notifications/progress', { progressToken: 1, progress }),
)
const answer = answering({ content: [] })

function setUp(parts?: TestInjectionParts, config: object = {}) {
  const injection = testInjection(parts)
  const channel = new TestChannel()
  const signal = new Cancellation()
  const call = toolCall('echo', {}, { channel, signal })
  const order: string[] = []
  const outcomes: Outcome[] = []
  let runs = 0
  const layer = halfOpen.layer(halfOpen.schema.parse(config), injection)
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
  return { injection, channel, signal, call, outcomes, order, ran, runs: () => runs }
}

for (const side of ['upstream', 'client'] as const) {
  test(`the server gets the call, and nothing comes back for a minute (${side})`, async () => {
    const { injection, channel, outcomes, order, runs } = setUp({ side })
    await injection.clock.advance(59_999)
    assert.deepEqual([runs(), outcomes.length, channel.received.length, channel.opened], [1, 0, 0, false])
    await injection.clock.advance(1)
    assert.equal(outcomes[0]?.kind, 'answered')
    assert.equal(channel.opened, true)
    assert.deepEqual(
      channel.received.map(({ message }) => message.text),
      texts,
    )
    assert.deepEqual(order, ['sent', 'sent', 'answered'])
    assert.deepEqual(injection.notes, [{ holdMs: 60_000 }])
  })
}

for (const side of ['upstream', 'client'] as const) {
  test(`a half-open connection that has to fail is silent for its time, then ends without a reply (${side})`, async () => {
    const { injection, channel, outcomes, runs } = setUp({ side }, { hold: '10s', then: 'fail' })
    await injection.clock.advance(9_999)
    assert.deepEqual([runs(), outcomes.length], [1, 0])
    await injection.clock.advance(1)
    assert.equal(outcomes[0]?.kind, 'failed')
    assert.deepEqual(injection.disconnects, ['nothing came over the connection (ETIMEDOUT)'])
    assert.deepEqual([channel.opened, channel.received.length, injection.clock.pending], [false, 0, 0])
  })
}

test('a failing half-open connection passes everything if its fault ends first, and nothing if the caller gives up', async () => {
  const ended = setUp({}, { then: 'fail' })
  await ended.injection.clock.advance(1_000)
  ended.injection.release()
  await ended.ran
  assert.deepEqual([ended.order, ended.injection.disconnects], [['sent', 'sent', 'answered'], []])
  const left = setUp({}, { then: 'fail' })
  await left.injection.clock.advance(1_000)
  left.signal.abort(gatewayError('attempt_timeout', 'no answer within 1000 ms'))
  await left.ran
  const [outcome] = left.outcomes
  assert.equal(outcome?.kind === 'failed' && outcome.error.reason, 'attempt_timeout')
  assert.deepEqual([left.channel.received.length, left.injection.clock.pending], [0, 0])
})

test('held replies are delivered unchanged and in order when the fault ends', async () => {
  const { injection, call, channel, order, outcomes, ran } = setUp()
  await injection.clock.advance(1_000)
  injection.release()
  await ran
  assert.deepEqual(order, ['sent', 'sent', 'answered'])
  assert.deepEqual(
    channel.received.map(({ message }) => message.text),
    texts,
  )
  assert.deepEqual(outcomes, [await answer(call)])
  assert.equal(injection.clock.pending, 0)
})

test('a caller that gives up waits no longer, and gets nothing any more', async () => {
  const { injection, signal, channel, outcomes, ran } = setUp()
  await injection.clock.advance(1_000)
  signal.abort(gatewayError('attempt_timeout', 'no answer within 1000 ms'))
  await ran
  assert.equal(outcomes[0]?.kind === 'failed' && outcomes[0].error.reason, 'attempt_timeout')
  assert.equal(channel.received.length, 0)
  assert.equal(injection.clock.pending, 0)
})

test('a reply does not wait behind a reader that is stuck once its caller has given up', async () => {
  const { injection, signal, channel, outcomes, ran } = setUp()
  channel.hold()
  await injection.clock.advance(60_000)
  assert.equal(outcomes.length, 0)
  signal.abort(gatewayError('cancelled', 'gone'))
  await ran
  assert.equal(outcomes[0]?.kind, 'failed')
})
