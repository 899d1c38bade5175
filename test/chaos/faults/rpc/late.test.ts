import { test } from 'node:test'
import { late } from '../../../../src/chaos/faults/rpc.ts'
import { Cancellation } from '../../../../src/mesh/cancel.ts'
import { gatewayError } from '../../../../src/mesh/errors.ts'
import { toolCall } from '../../../support/caller.ts'
import { answering, testInjection, type TestInjectionParts } from '../../../support/injection.ts'

import assert from 'node:assert/strict'

const answer = answering({ content: [] })

function setUp(parts?: TestInjectionParts) {
  const injection = testInjection(parts)
  const service = late.layer(
    late.schema.parse({}),
    injection,
  )((call) => {
    ran.push(String(call.id))
    return answer(call)
  })
  const ran: string[] = []
  const done: string[] = []
  const signal = new Cancellation()
  /** Resolves after the server's answer has reached the fault. */
  const send = (id: string) => {
    void service(toolCall('echo', {}, { id, signal })).then((outcome) => {
      done.push(`${id} ${outcome.kind === 'answered' ? 'answered' : outcome.error.reason}`)
    })
    return injection.clock.advance(0)
  }
  return { injection, ran, done, send, signal }
}

for (const side of ['upstream', 'client'] as const) {
  test(`a late reply comes 5 s after the server ran the call (${side})`, async () => {
    const { injection, ran, done, send } = setUp({ side })
    await send('a')
    await injection.clock.advance(4_999)
    assert.deepEqual([ran, done], [['a'], []])
    await injection.clock.advance(1)
    assert.deepEqual(done, ['a answered'])
    assert.deepEqual(injection.notes, [{ delayMs: 5_000 }])
  })
}

test('a reply without a waiting call still arrives when due', async () => {
  const { injection, done, send, signal } = setUp()
  await send('a')
  await injection.clock.advance(1_000)
  signal.abort(gatewayError('attempt_timeout', 'no answer within 1000 ms'))
  await injection.clock.advance(3_999)
  assert.deepEqual(done, ['a attempt_timeout'])
  assert.equal(injection.notes.length, 1)
  await injection.clock.advance(1)
  assert.deepEqual(injection.notes[1], { discarded: 'unread' })
  assert.equal(injection.clock.pending, 0)
})

test('nothing arrives late once the fault has ended', async () => {
  const { injection, send, signal } = setUp()
  await send('a')
  await injection.clock.advance(1_000)
  signal.abort(gatewayError('attempt_timeout', 'too late'))
  await injection.clock.advance(0)
  injection.release()
  assert.equal(injection.clock.pending, 0)
  await injection.clock.advance(10_000)
  assert.deepEqual(injection.notes, [{ delayMs: 5_000 }])
})

test('an agent that gave up gets nothing any more', async () => {
  const { injection, send, signal } = setUp({ side: 'client' })
  await send('a')
  await injection.clock.advance(1_000)
  signal.abort(gatewayError('cancelled', 'gone'))
  await injection.clock.advance(0)
  assert.deepEqual([injection.clock.pending, injection.notes.length], [0, 1])
})
