import { test } from 'node:test'
import { flap } from '../../../../src/chaos/faults/connection.ts'
import { toolCall } from '../../../support/caller.ts'
import { answering, testInjection, type TestInjectionParts } from '../../../support/injection.ts'

import assert from 'node:assert/strict'

function setUp(config: unknown = {}, parts?: TestInjectionParts) {
  const injection = testInjection(parts)
  const service = flap.layer(flap.schema.parse(config), injection)(answering({ content: [] }))
  return { injection, send: () => service(toolCall('echo')) }
}

test('a flapping server is up for 30 s, gone for 10 s, and so on', async () => {
  const { injection, send } = setUp()
  const seen: string[] = []
  for (let second = 0; second < 90; second += 5) {
    seen.push((await send()).kind === 'answered' ? 'up' : 'down')
    await injection.clock.advance(5_000)
  }
  const cycle = ['up', 'up', 'up', 'up', 'up', 'up', 'down', 'down']
  assert.deepEqual(seen, [...cycle, ...cycle, 'up', 'up'])
})

test('the time of a flap begins with the first call aimed at its server', async () => {
  const { injection, send } = setUp({ up: '1s', down: '1s' })
  await injection.clock.advance(1_500)
  assert.equal((await send()).kind, 'answered')
  assert.deepEqual(injection.inapplicable, ['up for another 1s'])
  await injection.clock.advance(1_000)
  assert.equal((await send()).kind, 'failed')
  assert.deepEqual(injection.notes, [{ effect: 'refused', downForMs: 1_000 }])
})

test('a gone server accepts no connections, and nothing is sent', async () => {
  const { injection, send } = setUp({ up: 1, down: '1s' })
  await send()
  await injection.clock.advance(500)
  const outcome = await send()
  assert.equal(outcome.kind === 'failed' && outcome.error.reason, 'upstream_unavailable')
  assert.equal(outcome.kind === 'failed' && outcome.error.sent, false)
})

test('with side client, the connection of the agent breaks', async () => {
  const { injection, send } = setUp({ up: 1, down: '1s' }, { side: 'client' })
  await send()
  await injection.clock.advance(500)
  assert.deepEqual((await send()).wire, { end: 'reset' })
})

test('a flap leaves no timer behind', async () => {
  const { injection, send } = setUp()
  await send()
  assert.equal(injection.clock.pending, 0)
})
