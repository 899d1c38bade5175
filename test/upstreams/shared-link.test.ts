import assert from 'node:assert/strict'
import { setImmediate } from 'node:timers/promises'
import { test } from 'node:test'
import { gatewayError } from '../../src/mesh/errors.ts'
import { toolCall } from '../support/caller.ts'
import type { Json } from '../support/memory-pipe.ts'
import { gatewayHello, shared } from '../support/shared.ts'

test('the process is told of no roots, whatever the gateway says of itself', async () => {
  const { pipe } = await shared()
  const { capabilities, clientInfo } = pipe.sent('initialize')[0]?.params as Json
  assert.deepEqual(capabilities, { sampling: {}, elicitation: { form: {}, url: {} } })
  assert.deepEqual(clientInfo, gatewayHello.clientInfo)
})

test('when the process ends, it ends for everybody', async () => {
  const { pipe, link, join } = await shared()
  const seats = [join(), join()]
  const outcomes = seats.map((seat) => seat.link.exchange(toolCall('t', {}, { caller: seat.caller })))
  pipe.end(gatewayError('upstream_disconnected', 'gone'))
  const errors = (await Promise.all(outcomes)).map(
    (o) => o.kind === 'failed' && [o.error.reason, o.error.sent],
  )
  assert.deepEqual(errors, [
    ['upstream_disconnected', true],
    ['upstream_disconnected', true],
  ])
  await setImmediate()
  assert.deepEqual(
    [link, ...seats.map((seat) => seat.link)].map(({ ended }) => ended.aborted),
    [true, true, true],
  )
})
