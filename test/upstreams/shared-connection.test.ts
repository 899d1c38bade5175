import assert from 'node:assert/strict'
import { setImmediate } from 'node:timers/promises'
import { test } from 'node:test'
import { gatewayError } from '../../src/mesh/errors.ts'
import { toolCall } from '../support/caller.ts'
import type { Json } from '../support/memory-pipe.ts'
import { gatewayInitialize, shared } from '../support/shared.ts'

test('the process hears of no roots, whatever capabilities the gateway claims', async () => {
  const { pipe } = await shared()
  const { capabilities, clientInfo } = pipe.sent('initialize')[0]?.params as Json
  assert.deepEqual(capabilities, { sampling: {}, elicitation: { form: {}, url: {} } })
  assert.deepEqual(clientInfo, gatewayInitialize.clientInfo)
})

test('when the process ends, it ends for everybody', async () => {
  const { pipe, upstreamSession, join } = await shared()
  const joined = [join(), join()]
  const outcomes = joined.map((session) =>
    session.upstreamSession.exchange(toolCall('t', {}, { caller: session.caller })),
  )
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
    [upstreamSession, ...joined.map((session) => session.upstreamSession)].map(({ ended }) => ended.aborted),
    [true, true, true],
  )
})
