import assert from 'node:assert/strict'
import { test } from 'node:test'
import { resultIn } from '../../../../src/chaos/fault.ts'
import { resultFaults } from '../../../../src/chaos/faults/result.ts'
import { toolCall } from '../../../support/caller.ts'
import { answering, faultLayer, testInjection } from '../../../support/injection.ts'

/** Fires at one call after another. Returns the results that the agent reads. */
function firing(type: 'result.stale' | 'result.wrong_entity', config: object = {}) {
  const injection = testInjection({ draws: 0 })
  const layer = faultLayer(resultFaults[type], config, injection)
  async function fire(
    args: Record<string, unknown>,
    text: string,
    tool = 'tool',
    tenant = 'test',
  ): Promise<unknown> {
    const result = { content: [{ type: 'text', text }] }
    const outcome = await layer(answering(result))(toolCall(tool, args, { tenant }))
    return (resultIn(outcome)?.content as { text: string }[])[0]?.text
  }
  return { injection, fire }
}

test('wrong_entity gives the reply to other arguments', async () => {
  const { injection, fire } = firing('result.wrong_entity')
  assert.equal(await fire({ id: 1 }, 'Ada'), 'Ada')
  assert.deepEqual(injection.inapplicable, ['no earlier reply to other arguments'])
  await injection.clock.advance(50)
  assert.equal(await fire({ id: 2 }, 'Bob'), 'Ada')
  assert.deepEqual(injection.notes, [{ ageMs: 50 }])
  assert.equal(await fire({ id: 1 }, 'Ada'), 'Bob')
})

test('wrong_entity mixes neither tools nor tenants, and never gives an equal reply', async () => {
  const { injection, fire } = firing('result.wrong_entity')
  await fire({ id: 1 }, 'Ada')
  assert.equal(await fire({ id: 2 }, 'x', 'other'), 'x')
  assert.equal(await fire({ id: 2 }, 'x', 'tool', 'another tenant'), 'x')
  assert.equal(await fire({ id: 3 }, 'Ada'), 'Ada')
  assert.equal(injection.notes.length, 0)
  assert.equal(injection.inapplicable.length, 4)
})

test('stale gives the first reply to the same arguments, in whatever order they stand', async () => {
  const { injection, fire } = firing('result.stale')
  assert.equal(await fire({ a: 1, b: 2 }, 'old'), 'old')
  await injection.clock.advance(1000)
  assert.equal(await fire({ b: 2, a: 1 }, 'new'), 'old')
  assert.deepEqual(injection.notes, [{ ageMs: 1000 }])
  assert.equal(await fire({ a: 1 }, 'other'), 'other')
})

test('stale waits until the earlier reply is old enough, and until a newer reply exists', async () => {
  const { injection, fire } = firing('result.stale', { age: '1m' })
  await fire({}, 'old')
  await injection.clock.advance(59_999)
  assert.equal(await fire({}, 'new'), 'new')
  await injection.clock.advance(1)
  assert.equal(await fire({}, 'old'), 'old')
  assert.equal(injection.inapplicable.at(-1), 'the reply has not changed since')
  assert.equal(await fire({}, 'new'), 'old')
})

test('the memory of a fault is bounded: the oldest calls are forgotten, and long replies are not kept', async () => {
  const { fire } = firing('result.stale')
  for (let id = 0; id < 300; id++) await fire({ id }, `old ${id}`)
  assert.equal(await fire({ id: 0 }, 'new'), 'new')
  assert.equal(await fire({ id: 299 }, 'new'), 'old 299')
  await fire({ id: 'long' }, 'x'.repeat(70_000))
  assert.equal(await fire({ id: 'long' }, 'new'), 'new')
})
