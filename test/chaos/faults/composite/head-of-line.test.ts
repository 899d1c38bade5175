import { test } from 'node:test'
import { headOfLine } from '../../../../src/chaos/faults/composite.ts'
import type { Service } from '../../../../src/mesh/call.ts'
import { Cancellation } from '../../../../src/mesh/cancel.ts'
import { gatewayError } from '../../../../src/mesh/errors.ts'
import { toolCall } from '../../../support/caller.ts'
import { answering, testInjection } from '../../../support/injection.ts'

import assert from 'node:assert/strict'

/** Calls in the order of their names, to a server that takes 100 ms a call. */
function setUp(config: object = {}) {
  const injection = testInjection()
  const began: string[] = []
  const over: string[] = []
  const server: Service = (call) => {
    began.push(`${call.tool} ${injection.clock.now()}`)
    return injection.clock.sleep(100, call.signal).then(() => answering({ content: [] })(call))
  }
  const service = headOfLine.layer(headOfLine.schema.parse(config), injection)(server)
  const send = (tool: string, to = 'test', signal = new Cancellation()) => {
    void service(toolCall(tool, {}, { server: to, signal })).then(({ kind }) => over.push(`${tool} ${kind}`))
    return signal
  }
  return { injection, began, over, send }
}

test('calls to a server wait behind a slow one, and go one after another', async () => {
  const { injection, began, send } = setUp()
  for (const tool of ['one', 'two', 'three']) send(tool)
  send('elsewhere', 'other')
  await injection.clock.advance(1_999)
  assert.deepEqual(began, [])
  await injection.clock.advance(1_000)
  assert.deepEqual(began, ['one 2000', 'elsewhere 2000', 'two 2100', 'three 2200'])
  assert.deepEqual(injection.notes.at(-1), { ahead: 2, waitedMs: 2_200 })
  assert.equal(injection.clock.pending, 0)
})

test('a queue that has emptied begins anew with a slow call', async () => {
  const { injection, began, send } = setUp({ hold: '1s' })
  send('one')
  await injection.clock.advance(1_100)
  send('two')
  await injection.clock.advance(1_000)
  assert.deepEqual(began, ['one 1000', 'two 2100'])
})

test('a caller that gives up leaves the queue, and no other caller overtakes', async () => {
  const { injection, began, over, send } = setUp()
  send('one')
  const signal = send('two')
  send('three')
  await injection.clock.advance(500)
  signal.abort(gatewayError('cancelled', 'never mind'))
  await injection.clock.advance(0)
  assert.deepEqual(over, ['two failed'])
  await injection.clock.advance(3_000)
  assert.deepEqual(began, ['one 2000', 'three 2100'])
})

test('when the slow call is given up, the next one goes', async () => {
  const { injection, began, send } = setUp()
  const signal = send('one')
  send('two')
  await injection.clock.advance(500)
  signal.abort(gatewayError('cancelled', 'never mind'))
  await injection.clock.advance(0)
  assert.deepEqual(began, ['two 500'])
})

test('all waiting calls go at once after a release', async () => {
  const { injection, began, over, send } = setUp()
  for (const tool of ['one', 'two', 'three']) send(tool)
  await injection.clock.advance(500)
  injection.release()
  await injection.clock.advance(0)
  await injection.clock.advance(100)
  assert.deepEqual(began.sort(), ['one 500', 'three 500', 'two 500'])
  assert.equal(over.length, 3)
  assert.equal(injection.clock.pending, 0)
})
