import assert from 'node:assert/strict'
import { test } from 'node:test'
import { Owners } from '../../src/upstreams/shared/owners.ts'
import { TestCaller } from '../support/caller.ts'
import { ManualClock } from '../support/manual-clock.ts'

function owners() {
  const clock = new ManualClock()
  return { clock, owners: new Owners(clock), one: new TestCaller(), other: new TestCaller() }
}

test('an id is that of the first caller that had it', () => {
  const { owners: known, one, other } = owners()
  known.add('a', one, false)
  known.add('a', other, false)
  assert.equal(known.of('a'), one)
  for (const id of ['b', 1, undefined, { toString: () => 'a' }]) assert.equal(known.of(id), undefined)
})

test('an id is forgotten when its time is over', async () => {
  const { clock, owners: known, one, other } = owners()
  known.add('a', one, true, 1_000)
  await clock.advance(999)
  assert.equal(known.of('a'), one)
  await clock.advance(1)
  assert.equal(known.of('a'), undefined)
  assert.equal(known.working(), 'nobody')
  known.add('a', other, false)
  assert.equal(known.of('a'), other)
})

test('for whom the server works is clear as long as it is one caller that is still there', () => {
  const { owners: known, one, other } = owners()
  assert.equal(known.working(), 'nobody')
  known.add('a', one, true)
  known.add('b', one, true)
  assert.equal(known.working(), one)
  known.add('c', other, true)
  assert.equal(known.working(), 'unclear')
  known.over('c')
  assert.equal(known.working(), one)
  known.left(one)
  assert.equal(known.working(), 'unclear')
  assert.equal(known.of('a'), undefined)
})

test('a caller with very many ids loses its own oldest, not those of others', () => {
  const { owners: known, one, other } = owners()
  known.add('theirs', other, false)
  for (let n = 0; n <= 1_000; n++) known.add(`mine ${n}`, one, false)
  assert.equal(known.of('mine 0'), undefined)
  assert.equal(known.of('mine 1'), one)
  assert.equal(known.of('theirs'), other)
  assert.equal(known.size, 1_001)
})

test('there are never more ids than are remembered of all callers', () => {
  const { owners: known } = owners()
  for (let n = 0; n < 11_000; n++) known.add(`id ${n}`, new TestCaller(), n % 2 === 0)
  assert.equal(known.size, 10_000)
})
