import assert from 'node:assert/strict'
import { test } from 'node:test'
import { late } from '../../../../src/chaos/faults/rpc/late.ts'
import { Cancellation } from '../../../../src/mesh/cancel.ts'
import { gatewayError } from '../../../../src/mesh/errors.ts'
import { toolCall } from '../../../support/caller.ts'
import { answering, testShot, type TestShotParts } from '../../../support/shot.ts'

const answer = answering({ content: [] })

function setUp(parts?: TestShotParts) {
  const shot = testShot(parts)
  const service = late.layer(
    late.schema.parse({}),
    shot,
  )((call) => {
    ran.push(String(call.id))
    return answer(call)
  })
  const ran: string[] = []
  const done: string[] = []
  const signal = new Cancellation()
  /** Resolves once the server has answered, and the fault has the reply. */
  const send = (id: string) => {
    void service(toolCall('echo', {}, { id, signal })).then((outcome) => {
      done.push(`${id} ${outcome.kind === 'answered' ? 'answered' : outcome.error.reason}`)
    })
    return shot.clock.advance(0)
  }
  return { shot, ran, done, send, signal }
}

for (const side of ['upstream', 'client'] as const) {
  test(`a late reply comes 5 s after the server ran the call (${side})`, async () => {
    const { shot, ran, done, send } = setUp({ side })
    await send('a')
    await shot.clock.advance(4_999)
    assert.deepEqual([ran, done], [['a'], []])
    await shot.clock.advance(1)
    assert.deepEqual(done, ['a answered'])
    assert.deepEqual(shot.notes, [{ delayMs: 5_000 }])
  })
}

test('a reply that nobody waited for still arrives when it is due', async () => {
  const { shot, done, send, signal } = setUp()
  await send('a')
  await shot.clock.advance(1_000)
  signal.abort(gatewayError('attempt_timeout', 'no answer within 1000 ms'))
  await shot.clock.advance(3_999)
  assert.deepEqual(done, ['a attempt_timeout'])
  assert.equal(shot.notes.length, 1)
  await shot.clock.advance(1)
  assert.deepEqual(shot.notes[1], { discarded: 'unread' })
  assert.equal(shot.clock.pending, 0)
})

test('nothing arrives late once the fault has ended', async () => {
  const { shot, send, signal } = setUp()
  await send('a')
  await shot.clock.advance(1_000)
  signal.abort(gatewayError('attempt_timeout', 'too late'))
  await shot.clock.advance(0)
  shot.release()
  assert.equal(shot.clock.pending, 0)
  await shot.clock.advance(10_000)
  assert.deepEqual(shot.notes, [{ delayMs: 5_000 }])
})

test('an agent that gave up gets nothing any more', async () => {
  const { shot, send, signal } = setUp({ side: 'client' })
  await send('a')
  await shot.clock.advance(1_000)
  signal.abort(gatewayError('cancelled', 'gone'))
  await shot.clock.advance(0)
  assert.deepEqual([shot.clock.pending, shot.notes.length], [0, 1])
})
