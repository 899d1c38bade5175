import { test } from 'node:test'
import { reorder } from '../../../../src/chaos/faults/rpc.ts'
import { Cancellation } from '../../../../src/mesh/cancel.ts'
import { gatewayError } from '../../../../src/mesh/errors.ts'
import { toolCall } from '../../../support/caller.ts'
import { answering, testInjection, type TestInjectionParts } from '../../../support/injection.ts'

import assert from 'node:assert/strict'

const answer = answering({ content: [] })

function setUp(parts?: TestInjectionParts) {
  const injection = testInjection(parts)
  const service = reorder.layer(reorder.schema.parse({}), injection)(answer)
  const done: string[] = []
  const signal = new Cancellation()
  /** Resolves after the server's answer has reached the fault. */
  const send = (id: string, server = 'test') => {
    void service(toolCall('echo', {}, { id, server, signal })).then((outcome) => {
      done.push(`${id} ${outcome.kind === 'answered' ? 'answered' : outcome.error.reason}`)
    })
    return injection.clock.advance(0)
  }
  return { injection, done, send, signal }
}

for (const side of ['upstream', 'client'] as const) {
  test(`replies swap places in pairs (${side})`, async () => {
    const { injection, done, send } = setUp({ side })
    for (const id of ['a', 'b', 'c', 'd']) {
      await send(id)
      await injection.clock.advance(30)
    }
    assert.deepEqual(done, ['b answered', 'a answered', 'd answered', 'c answered'])
    assert.deepEqual(injection.notes.slice(0, 3), [
      { effect: 'waits' },
      { effect: 'overtakes' },
      { effect: 'overtaken', heldMs: 55 },
    ])
    assert.equal(injection.clock.pending, 0)
  })
}

test('a reply that nothing overtakes within a second was delayed, and the journal says for how long', async () => {
  const { injection, done, send } = setUp()
  await send('a')
  await injection.clock.advance(999)
  assert.deepEqual(done, [])
  assert.deepEqual(injection.notes, [{ effect: 'waits' }], 'the journal shows the reply while held')
  await injection.clock.advance(1)
  assert.deepEqual(done, ['a answered'])
  assert.deepEqual(injection.inapplicable, [])
  assert.deepEqual(injection.notes, [{ effect: 'waits' }, { effect: 'not overtaken', heldMs: 1_000 }])
  await send('b')
  await injection.clock.advance(10)
  assert.deepEqual(done, ['a answered'], 'no reply is left for b to overtake')
})

test('replies of different servers do not overtake each other', async () => {
  const { injection, done, send } = setUp()
  await send('a', 'one')
  await send('b', 'two')
  await injection.clock.advance(10)
  assert.deepEqual(done, [])
})

test('a reply that waits goes on when the fault ends, and not when its caller has given up', async () => {
  for (const [end, expected] of [
    ['release', 'a answered'],
    ['abort', 'a cancelled'],
  ] as const) {
    const { injection, done, send, signal } = setUp()
    await send('a')
    await injection.clock.advance(10)
    if (end === 'release') injection.release()
    else signal.abort(gatewayError('cancelled', 'gone'))
    await injection.clock.advance(0)
    assert.deepEqual(done, [expected])
    assert.equal(injection.clock.pending, 0)
  }
})
