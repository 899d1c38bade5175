import assert from 'node:assert/strict'
import { test } from 'node:test'
import { inTurns } from '../../src/mesh/clock.ts'
import { countCopy, ownTurn, TurnBudget } from '../../src/mesh/turns.ts'

/** After how many messages there is a break, each of so many bytes and passed on to so many. */
function messagesUntilBreak(bytes: number, copies: number): number {
  const budget = new TurnBudget()
  for (let messages = 1; ; messages++) {
    budget.begin()
    for (let n = 0; n < copies; n++) countCopy()
    if (budget.spent(bytes)) return messages
  }
}

test('there is a break after 64 messages, or copies of them, or 256 KiB', () => {
  assert.equal(messagesUntilBreak(10, 0), 64)
  assert.equal(messagesUntilBreak(10, 20), 4)
  assert.equal(messagesUntilBreak(10, 1_000), 1)
  assert.equal(messagesUntilBreak(64 * 1024, 0), 4)
  assert.equal(messagesUntilBreak(1024 ** 2, 0), 1)
})

test('after a break the next one is as far away', () => {
  const budget = new TurnBudget()
  const breaks = Array.from({ length: 250 }, () => {
    budget.begin()
    return budget.spent(1)
  })
  assert.deepEqual(
    breaks.flatMap((isBreak, index) => (isBreak ? [index] : [])),
    [63, 127, 191],
  )
})

test('copies that somebody else passed on meanwhile do not count', () => {
  const budget = new TurnBudget()
  for (let n = 0; n < 1_000; n++) countCopy()
  budget.begin()
  assert.equal(budget.spent(1), false)
})

test('of thousands of things the first are done at once, and the others with breaks in between', async () => {
  const done: number[] = []
  const all = inTurns(
    Array.from({ length: 1_000 }, (_, n) => n),
    (n) => done.push(n),
  )
  let turns = 0
  while (done.length < 1_000) {
    assert.equal(done.length, 256 * (turns + 1))
    turns++
    await new Promise((resolve) => setImmediate(resolve))
  }
  await all
  assert.equal(turns, 3)
})

test('of those who ask for a turn of their own each has one, in order, and everything else has its turn in between', async () => {
  const seen: string[] = []
  const all = [1, 2, 3].map((n) => ownTurn().then(() => seen.push(`turn ${n}`)))
  const isOver = Promise.all(all).then(() => true)
  for (let turn = 0; turn < 3; turn++) {
    await new Promise((resolve) => setImmediate(resolve))
    seen.push('others')
  }
  assert.ok(await isOver)
  assert.deepEqual(seen, ['turn 1', 'others', 'turn 2', 'others', 'turn 3', 'others'])
  const late = ownTurn().then(() => seen.push('late'))
  assert.equal(seen.at(-1), 'others')
  await late
  assert.equal(seen.at(-1), 'late')
})
