import { test } from 'node:test'
import { coldStart } from '../../../../src/chaos/faults/composite.ts'
import type { Service } from '../../../../src/mesh/call.ts'
import { Cancellation } from '../../../../src/mesh/cancel.ts'
import { gatewayError } from '../../../../src/mesh/errors.ts'
import { toolCall } from '../../../support/caller.ts'
import { answering, testInjection } from '../../../support/injection.ts'

import assert from 'node:assert/strict'

function setUp(config: object = {}, answerMs = 0) {
  const injection = testInjection()
  const began: string[] = []
  const over: string[] = []
  const server: Service = (call) => {
    began.push(`${call.server} ${injection.clock.now()}`)
    return injection.clock.sleep(answerMs, call.signal).then(() => answering({ content: [] })(call))
  }
  const service = coldStart.layer(coldStart.schema.parse(config), injection)(server)
  const send = (to: string, signal = new Cancellation()) => {
    void service(toolCall('search', {}, { server: to, signal })).then(({ kind }) => over.push(kind))
    return signal
  }
  return { injection, began, over, send }
}

test('the first call to each server is slow, and calls that arrive meanwhile wait for the same start', async () => {
  const { injection, began, send } = setUp()
  send('a')
  await injection.clock.advance(1_000)
  send('a')
  send('b')
  await injection.clock.advance(3_000)
  assert.deepEqual(began, ['a 3000', 'a 3000', 'b 4000'])
  send('a')
  assert.deepEqual(began.slice(3), ['a 4000'])
  assert.deepEqual(injection.notes, [{ waitedMs: 3_000 }, { waitedMs: 2_000 }, { waitedMs: 3_000 }])
  assert.deepEqual(injection.inapplicable, ['the server is warm'])
})

test('a server that was idle for too long has to start again', async () => {
  const { injection, began, send } = setUp({ delay: '1s', idle: '10s' })
  send('a')
  await injection.clock.advance(11_000)
  send('a')
  await injection.clock.advance(0)
  await injection.clock.advance(10_001)
  send('a')
  await injection.clock.advance(1_000)
  assert.deepEqual(began, ['a 1000', 'a 11000', 'a 22001'])
})

test('a server is not idle while a call is under way', async () => {
  const { injection, began, send } = setUp({ delay: '1s', idle: '10s' }, 15_000)
  send('a')
  await injection.clock.advance(17_000)
  send('a')
  assert.deepEqual(began, ['a 1000', 'a 17000'])
})

test('a release ends the wait, and giving up ends the call', async () => {
  const { injection, began, over, send } = setUp()
  const signal = send('a')
  send('a')
  await injection.clock.advance(1_000)
  signal.abort(gatewayError('cancelled', 'never mind'))
  await injection.clock.advance(0)
  assert.deepEqual(over, ['failed'])
  injection.release()
  await injection.clock.advance(0)
  await injection.clock.advance(0)
  assert.deepEqual(began, ['a 1000'])
  assert.deepEqual(over, ['failed', 'answered'])
  assert.equal(injection.clock.pending, 0)
})
