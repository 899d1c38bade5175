import assert from 'node:assert/strict'
import { test } from 'node:test'
import { Coalescing } from '../../src/mesh/coalescing.ts'
import { ManualClock } from '../support/manual-clock.ts'

function coalescing() {
  const clock = new ManualClock()
  const told: string[] = []
  return { clock, told, changes: new Coalescing<string>(clock, (text) => told.push(text)) }
}

test('a lone message is sent once, at once', async () => {
  const { clock, told, changes } = coalescing()
  changes.tell('m', 'only')
  assert.deepEqual(told, ['only'])
  await clock.advance(10_000)
  assert.deepEqual(told, ['only'])
  assert.equal(clock.pending, 0)
})

test('a burst sends its first message at once, and its last 250 ms later', async () => {
  const { clock, told, changes } = coalescing()
  for (let n = 1; n <= 50; n++) changes.tell('m', `${n}`)
  await clock.advance(249)
  assert.deepEqual(told, ['1'])
  await clock.advance(1)
  assert.deepEqual(told, ['1', '50'])
})

test('an endless burst is sent now and then', async () => {
  const { clock, told, changes } = coalescing()
  for (let n = 0; n < 100; n++) {
    changes.tell('m', `${n}`)
    await clock.advance(10)
  }
  await clock.advance(250)
  assert.equal(told.length, 5)
  assert.equal(told.at(-1), '99')
})

test('different methods have different bursts', () => {
  const { told, changes } = coalescing()
  for (const method of ['tools', 'prompts', 'tools', 'prompts']) changes.tell(method, method)
  assert.deepEqual(told, ['tools', 'prompts'])
})

test('nothing is sent after the end, and no timer is left', async () => {
  const { clock, told, changes } = coalescing()
  changes.tell('m', 'first')
  changes.tell('m', 'last')
  changes.end()
  assert.equal(clock.pending, 0)
  await clock.advance(1_000)
  assert.deepEqual(told, ['first'])
})
