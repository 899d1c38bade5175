import assert from 'node:assert/strict'
import { test } from 'node:test'
import { inTurns, nextTurn } from '../../src/mesh/clock.ts'
import { Burst, countCopy, ownTurn, TurnBatch, TurnBudget } from '../../src/mesh/turns.ts'
import { ManualClock } from '../support/manual-clock.ts'

/** Returns the number of messages until a break; each message has `bytes` and goes to `copies` receivers. */
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

test('the next break comes after as much work again', () => {
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

test('a batch of thousands does its first tasks at once, and the others with breaks in between', async () => {
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

test('callers that ask for a turn each get a turn, in order, and other work runs in between', async () => {
  const seen: string[] = []
  let isOver = false
  const all = [1, 2, 3].map((n) => ownTurn('a').then(() => seen.push(`turn ${n}`)))
  void Promise.all(all).then(() => (isOver = true))
  while (!isOver) {
    await new Promise((resolve) => setImmediate(resolve))
    if (seen.at(-1) !== 'others') seen.push('others')
  }
  assert.deepEqual(
    seen.filter((each) => each !== 'others'),
    ['turn 1', 'turn 2', 'turn 3'],
  )
  assert.ok(seen.indexOf('turn 2') - seen.indexOf('turn 1') === 2, seen.join())
  assert.ok(seen.indexOf('turn 3') - seen.indexOf('turn 2') === 2, seen.join())
})

test('a caller that asks for many turns does not delay callers that ask for one', async () => {
  const seen: string[] = []
  const ask = (peer: string, name: string) => ownTurn(peer).then(() => seen.push(name))
  const flood = Array.from({ length: 100 }, (_, n) => ask('flood', `flood ${n}`))
  await Promise.all([ask('a', 'a 0'), ask('a', 'a 1'), ask('b', 'b 0')])
  assert.deepEqual(seen, ['flood 0', 'a 0', 'b 0', 'flood 1', 'a 1'])
  await Promise.all(flood)
  assert.deepEqual(
    seen.filter((name) => name.startsWith('flood')),
    flood.map((_, n) => `flood ${n}`),
  )
})

test('long work in its own turn leaves others as much time as the work took', async () => {
  const began: number[] = []
  const ended: number[] = []
  const work = () => {
    began.push(performance.now())
    while (performance.now() - (began.at(-1) ?? 0) < 20);
    ended.push(performance.now())
  }
  await Promise.all([ownTurn('a').then(work), ownTurn('a').then(work)])
  await ownTurn('a').then(work)
  for (const n of [1, 2]) {
    const pauseMs = (began[n] ?? 0) - (ended[n - 1] ?? 0)
    // Node's timers may fire a millisecond early.
    assert.ok(pauseMs >= 19, `${pauseMs} ms`)
  }
})

test('items of one turn of the event loop are done in a row, each step for all items before the next step', async () => {
  const seen: string[] = []
  const batch = new TurnBatch((name: string) => {
    void Promise.resolve()
      .then(() => seen.push(`${name} begins`))
      .then(() => seen.push(`${name} ends`))
  })
  batch.add('first')
  batch.add('second')
  assert.deepEqual(seen, [], 'not before the turn ends')
  await new Promise((resolve) => setImmediate(resolve))
  assert.deepEqual(seen, ['first begins', 'second begins', 'first ends', 'second ends'])
})

test('an item added during a batch comes in the next turn', async () => {
  const seen: number[] = []
  const batch = new TurnBatch((left: number) => {
    seen.push(left)
    if (left > 0) batch.add(left - 1)
  })
  batch.add(2)
  for (const expected of [[2], [2, 1], [2, 1, 0]]) {
    await new Promise((resolve) => setImmediate(resolve))
    assert.deepEqual(seen, expected)
  }
})

test('a burst is done at the end of the turn in which there is enough of it', async () => {
  const clock = new ManualClock()
  const seen: number[] = []
  const burst = new Burst(clock, { pieces: 3, ms: 100 }, (piece: number) => seen.push(piece))
  for (const piece of [1, 2]) burst.add(piece)
  await nextTurn()
  assert.deepEqual(seen, [], 'two items are too few')
  for (const piece of [3, 4]) burst.add(piece)
  assert.deepEqual(seen, [], 'not before the turn ends')
  await nextTurn()
  assert.deepEqual(seen, [1, 2, 3, 4])
  assert.equal(clock.pending, 0, 'nothing is pending')
})

test('a burst that is too small is done some time after the first piece of it', async () => {
  const clock = new ManualClock()
  const seen: string[] = []
  const burst = new Burst(clock, { pieces: 3, ms: 100 }, (piece: string) => seen.push(piece))
  burst.add('first')
  await clock.advance(60)
  burst.add('second')
  await clock.advance(39)
  assert.deepEqual(seen, [])
  await clock.advance(1)
  assert.deepEqual(seen, ['first', 'second'])
  burst.add('third')
  burst.flush()
  assert.deepEqual(seen, ['first', 'second', 'third'])
  assert.equal(clock.pending, 0)
})
