import assert from 'node:assert/strict'
import { test } from 'node:test'
import { registryFaults } from '../../../../src/chaos/faults/registry.ts'
import { toolCall } from '../../../support/caller.ts'
import { answering, testInjection } from '../../../support/injection.ts'

function stormy(config: object) {
  const injection = testInjection()
  const { layer, schema } = registryFaults['registry.list_changed_storm']
  const service = layer(schema.parse(config), injection)(answering({ content: [] }))
  const fire = (server = 'test') => service(toolCall('tool', {}, { server }))
  return { injection, told: injection.faultEnvironment.told, fire }
}

test('a storm sends its number of notices over its duration, and the call goes on at once', async () => {
  const { injection, told, fire } = stormy({})
  assert.equal((await fire()).kind, 'answered')
  await injection.clock.advance(1_000)
  assert.equal(told.length, 10)
  assert.equal(told[0]?.message.text, '{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}')
  await injection.clock.advance(60_000)
  assert.equal(told.length, 100)
  assert.equal(injection.clock.pending, 0)
})

test('storms have the right number of notices, with many notices a second or less than one', async () => {
  for (const [perSecond, expected] of [
    [1_000, 2_500],
    [0.5, 1],
    [33, 82],
  ] as const) {
    const { injection, told, fire } = stormy({ perSecond, duration: '2500ms' })
    await fire()
    await injection.clock.advance(10_000)
    assert.equal(told.length, expected)
  }
})

test('there is one storm at a time at a server, and another one after it', async () => {
  const { injection, told, fire } = stormy({ duration: '1s' })
  await fire()
  await fire()
  await fire('other')
  assert.deepEqual(injection.inapplicable, ['there is a storm at test already'])
  await injection.clock.advance(1_000)
  assert.equal(told.filter(({ server }) => server === 'test').length, 10)
  assert.equal(told.filter(({ server }) => server === 'other').length, 10)
  await fire()
  await injection.clock.advance(1_000)
  assert.equal(told.length, 30)
})

test('a released storm is over at once', async () => {
  const { injection, told, fire } = stormy({})
  await fire()
  await injection.clock.advance(500)
  injection.release()
  assert.equal(injection.clock.pending, 0)
  await injection.clock.advance(5_000)
  assert.equal(told.length, 5)
  await fire()
  assert.equal(injection.clock.pending, 0)
})
