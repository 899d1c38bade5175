import assert from 'node:assert/strict'
import { test } from 'node:test'
import { Owners } from '../../src/upstreams/shared/owners.ts'
import { TestCaller } from '../support/caller.ts'
import { ManualClock } from '../support/manual-clock.ts'

function owners() {
  const clock = new ManualClock()
  return { clock, owners: new Owners(clock), one: new TestCaller(), other: new TestCaller() }
}

test('an id belongs to its first caller while the server works for it, and then to the next caller the server gives it to', () => {
  const { owners: known, one, other } = owners()
  known.add('a', one, true)
  known.add('a', other, true)
  assert.equal(known.of('a'), one)
  known.over('a')
  assert.equal(known.of('a'), one)
  known.add('a', other, true)
  assert.equal(known.of('a'), other)
  for (const id of ['b', 1, undefined, { toString: () => 'a' }]) assert.equal(known.of(id), undefined)
})

test('an id may be as long as its server likes, and takes no more room than another one', () => {
  const { owners: known, one, other } = owners()
  const long = 'x'.repeat(1_000_000)
  known.add(`${long}1`, one, true)
  known.add(`${long}2`, other, true)
  assert.deepEqual(
    [known.of(`${long}1`), known.of(`${long}2`), known.of(`${long}3`)],
    [one, other, undefined],
  )
  const before = process.memoryUsage().heapUsed
  for (let n = 0; n < 500; n++) known.add(`${n}${'y'.repeat(200_000)}`, one, false)
  assert.ok(process.memoryUsage().heapUsed - before < 50_000_000)
  known.over(`${long}1`)
  known.over(`${long}2`)
  assert.equal(known.working(), 'nobody')
})

test('the server is done with an id when its time is over, and the id stays its owner’s unless another gets it', async () => {
  const { clock, owners: known, one, other } = owners()
  known.add('a', one, true, 1_000)
  await clock.advance(999)
  assert.equal(known.of('a'), one)
  await clock.advance(1)
  assert.equal(known.of('a'), one)
  assert.equal(known.working(), 'nobody')
  known.add('a', other, false)
  assert.equal(known.of('a'), other)
})

test('the server works for a known caller as long as one remaining caller is at work', () => {
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

test('flooding callers take nothing from a caller with fewer ids', () => {
  const { owners: known, one } = owners()
  known.add('theirs', one, false)
  for (let flood = 0; flood < 10; flood++) {
    const greedy = new TestCaller()
    for (let n = 0; n <= 1_000; n++) known.add(`${flood} ${n}`, greedy, false)
  }
  for (let n = 0; n < 10_000; n++) known.add(`another ${n}`, new TestCaller(), false)
  assert.equal(known.of('theirs'), one)
  assert.equal(known.size, 10_000)
})

test("a caller's finished ids are forgotten first, and open ids still count after being forgotten", async () => {
  const { clock, owners: known, one, other } = owners()
  for (let n = 0; n < 999; n++) known.add(`open ${n}`, one, true, 60_000)
  known.add('over', one, false)
  known.add('open 999', one, true, 60_000)
  assert.equal(known.of('over'), undefined)
  assert.equal(known.of('open 0'), one)
  known.add('one more', one, true, 60_000)
  assert.equal(known.of('open 0'), undefined)
  for (let n = 0; n < 1_000; n++) known.over(`open ${n}`)
  known.over('one more')
  assert.equal(known.working(), one)
  known.add('b', other, true)
  assert.equal(known.working(), 'unclear')
  await clock.advance(60_000)
  assert.equal(known.working(), other)
})

test('an open thing without a remembered id still counts as its caller at work', () => {
  const { owners: known, one, other } = owners()
  for (let n = 0; n < 10_000; n++) known.add(`id ${n}`, new TestCaller(), false)
  known.add('mine', one, true)
  assert.equal(known.of('mine'), undefined)
  assert.equal(known.working(), one)
  known.left(other)
  known.left(one)
  assert.equal(known.working(), 'unclear')
})

test("the server's caller is unclear for five minutes at most after a caller has left", async () => {
  const { clock, owners: known, one, other } = owners()
  known.add('a', one, true)
  known.add('b', one, true)
  known.add('c', one, true, 1_000)
  known.left(one)
  known.add('d', other, true)
  known.over('a')
  await clock.advance(299_999)
  assert.equal(known.working(), 'unclear')
  await clock.advance(1_000)
  assert.equal(known.working(), other)
  assert.equal(known.size, 1)
})
