import assert from 'node:assert/strict'
import { test } from 'node:test'
import { registryFaults } from '../../../../src/chaos/faults/registry.ts'
import { toolCall } from '../../../support/caller.ts'
import { answering, testShot } from '../../../support/shot.ts'

/** A storm fault, to fire at servers. */
function stormy(config: object) {
  const shot = testShot()
  const { layer, schema } = registryFaults['registry.list_changed_storm']
  const service = layer(schema.parse(config), shot)(answering({ content: [] }))
  const fire = (server = 'test') => service(toolCall('tool', {}, { server }))
  return { shot, told: shot.world.told, fire }
}

test('a storm tells as often as it says, for as long as it says, and the call goes on at once', async () => {
  const { shot, told, fire } = stormy({})
  assert.equal((await fire()).kind, 'answered')
  await shot.clock.advance(1_000)
  assert.equal(told.length, 10)
  assert.equal(told[0]?.message.text, '{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}')
  await shot.clock.advance(60_000)
  assert.equal(told.length, 100)
  assert.equal(shot.clock.pending, 0)
})

test('many in a second, or less than one, are as many as they should be', async () => {
  for (const [perSecond, expected] of [
    [1_000, 2_500],
    [0.5, 1],
    [33, 82],
  ] as const) {
    const { shot, told, fire } = stormy({ perSecond, duration: '2500ms' })
    await fire()
    await shot.clock.advance(10_000)
    assert.equal(told.length, expected)
  }
})

test('there is one storm at a time at a server, and another one after it', async () => {
  const { shot, told, fire } = stormy({ duration: '1s' })
  await fire()
  await fire()
  await fire('other')
  assert.deepEqual(shot.inapplicable, ['there is a storm at test already'])
  await shot.clock.advance(1_000)
  assert.equal(told.filter(({ server }) => server === 'test').length, 10)
  assert.equal(told.filter(({ server }) => server === 'other').length, 10)
  await fire()
  await shot.clock.advance(1_000)
  assert.equal(told.length, 30)
})

test('a released storm is over at once', async () => {
  const { shot, told, fire } = stormy({})
  await fire()
  await shot.clock.advance(500)
  shot.release()
  assert.equal(shot.clock.pending, 0)
  await shot.clock.advance(5_000)
  assert.equal(told.length, 5)
  await fire()
  assert.equal(shot.clock.pending, 0)
})
