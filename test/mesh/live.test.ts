import assert from 'node:assert/strict'
import { test } from 'node:test'
import { liveWith } from '../support/live.ts'
import { ManualClock } from '../support/manual-clock.ts'

const PATIENCE_MS = 900_000

/** A generation with a count of its closes. */
class Counted {
  readonly patienceMs = PATIENCE_MS
  closed = 0

  close(): void {
    this.closed++
  }
}

function setUp() {
  const clock = new ManualClock()
  const [first, second, third] = [new Counted(), new Counted(), new Counted()]
  const overdue: number[] = []
  const live = liveWith<Counted>(first, clock, (calls) => overdue.push(calls))
  return { clock, first, second, third, overdue, live }
}

test('a swap is in force at once, and closes an old generation that nobody uses', () => {
  const { clock, live, first, second } = setUp()
  assert.equal(live.current, first)
  live.swap(second)
  assert.equal(live.current, second)
  assert.equal(live.enter().generation, second)
  assert.deepEqual([first.closed, second.closed], [1, 0])
  assert.equal(clock.pending, 0)
})

test('a call in flight finishes on its generation, which closes after the last of them', async () => {
  const { clock, live, first, second } = setUp()
  const calls = [live.enter(), live.enter()]
  live.swap(second)
  calls[0]?.release()
  assert.equal(first.closed, 0)
  assert.equal(calls[1]?.generation, first)
  calls[1]?.release()
  assert.equal(first.closed, 1)
  assert.equal(clock.pending, 0)
  await clock.advance(PATIENCE_MS * 2)
  assert.equal(first.closed, 1)
})

test('a generation with a call under way stays open for up to a quarter of an hour', async () => {
  const { clock, live, first, second, overdue } = setUp()
  const calls = [live.enter(), live.enter(), live.enter()]
  live.swap(second)
  calls[0]?.release()
  await clock.advance(PATIENCE_MS - 1)
  assert.equal(first.closed, 0)
  assert.deepEqual(live.open, [second, first])
  await clock.advance(1)
  assert.equal(first.closed, 1)
  assert.deepEqual(overdue, [2])
  assert.deepEqual(live.open, [second])
  for (const call of calls) call.release()
  assert.equal(first.closed, 1)
})

test('the generation in force stays open after any number of calls', async () => {
  const { clock, live, first } = setUp()
  live.enter().release()
  const [one, two] = [live.enter(), live.enter()]
  one.release()
  two.release()
  await clock.advance(PATIENCE_MS * 2)
  assert.equal(first.closed, 0)
})

test('generations whose last calls are under way at the same time do not mix up their calls', async () => {
  const { clock, live, first, second, third } = setUp()
  const old = live.enter()
  live.swap(second)
  await clock.advance(PATIENCE_MS / 2)
  const newer = live.enter()
  live.swap(third)
  newer.release()
  assert.deepEqual([first.closed, second.closed, third.closed], [0, 1, 0])
  await clock.advance(PATIENCE_MS / 2)
  assert.deepEqual([first.closed, second.closed, third.closed], [1, 1, 0])
  old.release()
  assert.deepEqual([first.closed, second.closed, third.closed], [1, 1, 0])
})
