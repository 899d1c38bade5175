import assert from 'node:assert/strict'
import { test } from 'node:test'
import { coldStart } from '../../../../src/chaos/faults/composite/cold-start.ts'
import type { Service } from '../../../../src/mesh/call.ts'
import { Cancellation } from '../../../../src/mesh/cancel.ts'
import { gatewayError } from '../../../../src/mesh/errors.ts'
import { toolCall } from '../../../support/caller.ts'
import { answering, testShot } from '../../../support/shot.ts'

function setUp(config: object = {}, answerMs = 0) {
  const shot = testShot()
  const began: string[] = []
  const over: string[] = []
  const server: Service = (call) => {
    began.push(`${call.server} ${shot.clock.now()}`)
    return shot.clock.sleep(answerMs, call.signal).then(() => answering({ content: [] })(call))
  }
  const service = coldStart.layer(coldStart.schema.parse(config), shot)(server)
  const send = (to: string, signal = new Cancellation()) => {
    void service(toolCall('search', {}, { server: to, signal })).then(({ kind }) => over.push(kind))
    return signal
  }
  return { shot, began, over, send }
}

test('the first call to each server is slow, and those that come meanwhile wait for the same start', async () => {
  const { shot, began, send } = setUp()
  send('a')
  await shot.clock.advance(1_000)
  send('a')
  send('b')
  await shot.clock.advance(3_000)
  assert.deepEqual(began, ['a 3000', 'a 3000', 'b 4000'])
  send('a')
  assert.deepEqual(began.slice(3), ['a 4000'])
  assert.deepEqual(shot.notes, [{ waitedMs: 3_000 }, { waitedMs: 2_000 }, { waitedMs: 3_000 }])
  assert.deepEqual(shot.inapplicable, ['the server is warm'])
})

test('a server that was idle for too long has to start again', async () => {
  const { shot, began, send } = setUp({ delay: '1s', idle: '10s' })
  send('a')
  await shot.clock.advance(11_000)
  send('a')
  await shot.clock.advance(0)
  await shot.clock.advance(10_001)
  send('a')
  await shot.clock.advance(1_000)
  assert.deepEqual(began, ['a 1000', 'a 11000', 'a 22001'])
})

test('a server is not idle while a call is under way', async () => {
  const { shot, began, send } = setUp({ delay: '1s', idle: '10s' }, 15_000)
  send('a')
  await shot.clock.advance(17_000)
  send('a')
  assert.deepEqual(began, ['a 1000', 'a 17000'])
})

test('a release ends the wait, and giving up ends the call', async () => {
  const { shot, began, over, send } = setUp()
  const signal = send('a')
  send('a')
  await shot.clock.advance(1_000)
  signal.abort(gatewayError('cancelled', 'never mind'))
  await shot.clock.advance(0)
  assert.deepEqual(over, ['failed'])
  shot.release()
  await shot.clock.advance(0)
  await shot.clock.advance(0)
  assert.deepEqual(began, ['a 1000'])
  assert.deepEqual(over, ['failed', 'answered'])
  assert.equal(shot.clock.pending, 0)
})
