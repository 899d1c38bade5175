import { test } from 'node:test'
import { latency } from '../../../../src/chaos/faults/connection.ts'
import type { Outcome } from '../../../../src/mesh/call.ts'
import { Cancellation } from '../../../../src/mesh/cancel.ts'
import { gatewayError } from '../../../../src/mesh/errors.ts'
import { toolCall } from '../../../support/caller.ts'
import { answering, testInjection, type TestInjectionParts } from '../../../support/injection.ts'

import assert from 'node:assert/strict'

const answer = answering({ content: [] })

function setUp(distribution: unknown, parts?: TestInjectionParts) {
  const injection = testInjection(parts)
  const signal = new Cancellation()
  const call = toolCall('echo', {}, { signal })
  const outcomes: Outcome[] = []
  let runs = 0
  const layer = latency.layer(latency.schema.parse({ distribution }), injection)
  const ran = layer((sent) => (runs++, answer(sent)))(call).then((outcome) => void outcomes.push(outcome))
  return { injection, signal, call, outcomes, ran, runs: () => runs }
}

for (const side of ['upstream', 'client'] as const) {
  test(`the call is sent after the delay, and not before (${side})`, async () => {
    const { injection, call, outcomes, runs } = setUp({ kind: 'fixed', delay: '700ms' }, { side })
    await injection.clock.advance(699)
    assert.equal(runs(), 0)
    await injection.clock.advance(1)
    assert.equal(runs(), 1)
    assert.deepEqual(outcomes, [await answer(call)])
    assert.deepEqual(injection.notes, [{ delayMs: 700 }])
  })
}

test('each call waits for its own drawn delay', async () => {
  const { injection, runs } = setUp({ kind: 'uniform', min: 100, max: 200 }, { draws: { delay: 0.25 } })
  assert.deepEqual(injection.notes, [{ delayMs: 125 }])
  await injection.clock.advance(124)
  assert.equal(runs(), 0)
  await injection.clock.advance(1)
  assert.equal(runs(), 1)
})

test('when the fault ends, the call is sent at once', async () => {
  const { injection, ran, outcomes } = setUp({ kind: 'fixed', delay: '1h' })
  injection.release()
  await ran
  assert.equal(outcomes[0]?.kind, 'answered')
  assert.equal(injection.clock.pending, 0)
})

test('a call that is given up meanwhile is never sent', async () => {
  const { injection, signal, ran, outcomes, runs } = setUp({ kind: 'fixed', delay: '1h' })
  signal.abort(gatewayError('deadline_exceeded', 'too late'))
  await ran
  assert.equal(runs(), 0)
  assert.deepEqual(outcomes, [{ kind: 'failed', error: gatewayError('deadline_exceeded', 'too late') }])
  assert.equal(injection.clock.pending, 0)
})

test('there is no latency without a distribution', () => {
  assert.equal(latency.schema.safeParse({}).success, false)
})
