import { test } from 'node:test'
import { pool } from '../../../../src/chaos/faults/composite.ts'
import type { Outcome, Service } from '../../../../src/mesh/call.ts'
import { Cancellation } from '../../../../src/mesh/cancel.ts'
import { gatewayError, type GatewayError } from '../../../../src/mesh/errors.ts'
import { toolCall } from '../../../support/caller.ts'
import { answering, testInjection } from '../../../support/injection.ts'

import assert from 'node:assert/strict'

function setUp(config: object, answerMs: number) {
  const injection = testInjection()
  const began: string[] = []
  const over: string[] = []
  const server: Service = (call) => {
    began.push(`${call.tool} ${injection.clock.now()}`)
    return injection.clock.sleep(answerMs, call.signal).then(
      () => answering({ content: [] })(call),
      (error: GatewayError): Outcome => ({ kind: 'failed', error }),
    )
  }
  const service = pool.layer(pool.schema.parse(config), injection)(server)
  const send = (tool: string, to = 'test', signal = new Cancellation()) => {
    void service(toolCall(tool, {}, { server: to, signal })).then(({ kind }) => over.push(`${tool} ${kind}`))
    return signal
  }
  return { injection, began, over, send }
}

test('a pool lets its number of calls through at a time, and others follow in order', async () => {
  const { injection, began, send } = setUp({ slots: 2 }, 100)
  for (const tool of ['a', 'b', 'c', 'd']) send(tool)
  send('elsewhere', 'other')
  await injection.clock.advance(500)
  assert.deepEqual(began, ['a 0', 'b 0', 'elsewhere 0', 'c 100', 'd 100'])
  assert.deepEqual(
    injection.notes.map(({ waitedMs }) => waitedMs),
    [0, 0, 0, 100, 100],
  )
  assert.equal(injection.clock.pending, 0)
  send('e')
  send('f')
  assert.deepEqual(began.slice(5), ['e 500', 'f 500'])
})

test('no call waits longer than `hold`, and a call sent without a slot gives no slot back', async () => {
  const { injection, began, send } = setUp({ slots: 1, hold: '1s' }, 5_000)
  send('a')
  send('b')
  await injection.clock.advance(6_000)
  assert.deepEqual(began, ['a 0', 'b 1000'])
  send('c')
  send('d')
  assert.deepEqual(began.slice(2), ['c 6000'])
})

test('a waiting caller that gives up is not sent, and takes no slot', async () => {
  const { injection, began, over, send } = setUp({}, 100)
  send('a')
  const signal = send('b')
  send('c')
  await injection.clock.advance(50)
  signal.abort(gatewayError('cancelled', 'never mind'))
  await injection.clock.advance(0)
  assert.deepEqual(over, ['b failed'])
  await injection.clock.advance(1_000)
  assert.deepEqual(began, ['a 0', 'c 100'])
  assert.equal(injection.clock.pending, 0)
})

test('an abandoned call gives its slot back too', async () => {
  const { injection, began, send } = setUp({}, 1_000)
  const signal = send('a')
  send('b')
  await injection.clock.advance(50)
  signal.abort(gatewayError('cancelled', 'never mind'))
  await injection.clock.advance(0)
  assert.deepEqual(began, ['a 0', 'b 50'])
})

test('all waiting calls go at once after a release', async () => {
  const { injection, began, send } = setUp({}, 1_000)
  for (const tool of ['a', 'b', 'c']) send(tool)
  await injection.clock.advance(10)
  injection.release()
  await injection.clock.advance(0)
  assert.deepEqual(began, ['a 0', 'b 10', 'c 10'])
})
