import assert from 'node:assert/strict'
import { test } from 'node:test'
import { flap } from '../../../../src/chaos/faults/connection/flap.ts'
import { toolCall } from '../../../support/caller.ts'
import { answering, testShot, type TestShotParts } from '../../../support/shot.ts'

function setUp(config: unknown = {}, parts?: TestShotParts) {
  const shot = testShot(parts)
  const service = flap.layer(flap.schema.parse(config), shot)(answering({ content: [] }))
  return { shot, send: () => service(toolCall('echo')) }
}

test('a server that flaps is up for 30 s, gone for 10 s, and so on', async () => {
  const { shot, send } = setUp()
  const seen: string[] = []
  for (let second = 0; second < 90; second += 5) {
    seen.push((await send()).kind === 'answered' ? 'up' : 'down')
    await shot.clock.advance(5_000)
  }
  const cycle = ['up', 'up', 'up', 'up', 'up', 'up', 'down', 'down']
  assert.deepEqual(seen, [...cycle, ...cycle, 'up', 'up'])
})

test('its time begins with the first call that it is aimed at', async () => {
  const { shot, send } = setUp({ up: '1s', down: '1s' })
  await shot.clock.advance(1_500)
  assert.equal((await send()).kind, 'answered')
  assert.deepEqual(shot.inapplicable, ['up for another 1000 ms'])
  await shot.clock.advance(1_000)
  assert.equal((await send()).kind, 'failed')
  assert.deepEqual(shot.notes, [{ effect: 'refused', downForMs: 1_000 }])
})

test('while it is gone, no connection can be made and nothing is sent', async () => {
  const { shot, send } = setUp({ up: 1, down: '1s' })
  await send()
  await shot.clock.advance(500)
  const outcome = await send()
  assert.equal(outcome.kind === 'failed' && outcome.error.reason, 'upstream_unavailable')
  assert.equal(outcome.kind === 'failed' && outcome.error.sent, false)
})

test("on the agent's side it is the agent whose connection breaks", async () => {
  const { shot, send } = setUp({ up: 1, down: '1s' }, { side: 'client' })
  await send()
  await shot.clock.advance(500)
  assert.deepEqual((await send()).wire, { end: 'reset' })
})

test('it leaves no timer behind', async () => {
  const { shot, send } = setUp()
  await send()
  assert.equal(shot.clock.pending, 0)
})
