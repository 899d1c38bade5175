import assert from 'node:assert/strict'
import { test } from 'node:test'
import { arrivals, Turns } from '../../bench/full/paced.ts'
import { paceFor, shares, thorough } from '../../bench/full/plan.ts'
import { cells } from '../../bench/full/cells.ts'
import { nextTurn } from '../../src/mesh/clock.ts'

test('arrivals have the requested rate, come in rising order within the window, and repeat for the same seed', () => {
  const due = arrivals(1_000, 10_000, 7)
  assert.ok(Math.abs(due.length - 10_000) < 400, String(due.length))
  assert.ok(due.every((at, index) => at >= (due[index - 1] ?? 0) && at < 10_000))
  assert.deepEqual(arrivals(1_000, 10_000, 7), due)
  assert.notDeepEqual(arrivals(1_000, 10_000, 8), due)
})

test('arrivals are random: gaps vary as much as they are long', () => {
  const due = arrivals(1_000, 20_000, 1)
  const gaps = [...due].map((at, index) => at - (due[index - 1] ?? 0))
  const mean = gaps.reduce((sum, gap) => sum + gap, 0) / gaps.length
  const deviation = Math.sqrt(gaps.reduce((sum, gap) => sum + (gap - mean) ** 2, 0) / gaps.length)
  assert.ok(Math.abs(deviation / mean - 1) < 0.05, String(deviation / mean))
})

/** Calls on a manual clock; the test ends each call. */
function stage(due: readonly number[], callers: number) {
  let now = 0
  const made: { readonly caller: number; readonly end: () => void; readonly fail: (error: Error) => void }[] =
    []
  const turns = new Turns(
    Array.from({ length: callers }, (_, index) => index),
    due,
    () => now,
    (caller) => new Promise<void>((end, fail) => made.push({ caller, end, fail })),
  )
  return { turns, made, at: (ms: number) => (now = ms) }
}

test('a call that waits for a free caller is timed from its due time', async () => {
  const { turns, made, at } = stage([0, 1, 2], 1)
  at(2)
  turns.arrived(3)
  assert.equal(made.length, 1)
  for (const ms of [100, 101, 102]) {
    at(ms)
    made.at(-1)?.end()
    await nextTurn()
  }
  assert.deepEqual(await turns.latencies, Float64Array.of(100, 100, 100))
})

test('calls arrive before earlier calls have ended, and callers take turns', async () => {
  const { turns, made } = stage([0, 0, 0, 0], 3)
  assert.equal(turns.arrived(2), true)
  assert.deepEqual(
    made.map(({ caller }) => caller),
    [0, 1],
  )
  assert.equal(turns.arrived(4), false)
  made[0]?.end()
  await nextTurn()
  assert.deepEqual(
    made.map(({ caller }) => caller),
    [0, 1, 2, 0],
  )
})

test('a rate that cannot be held is given up, after the running calls have ended', async () => {
  const { turns, made } = stage([0, 1, 2], 1)
  turns.arrived(2)
  turns.giveUp()
  turns.arrived(3)
  assert.equal(made.length, 1)
  made[0]?.end()
  assert.equal(await turns.latencies, undefined)
})

test('the first failed call fails the window', async () => {
  const { turns, made } = stage([0], 1)
  turns.arrived(1)
  made[0]?.fail(new Error('not the text that was sent'))
  await assert.rejects(turns.latencies, /not the text/)
})

test('the pace is a share of the rate of our slowest row, and a hardly faster row does not hold the pace', () => {
  const { perSecond, holds } = paceFor([3_000, 2_014, 5_000])
  assert.equal(perSecond, 600)
  assert.deepEqual([700, 720].map(holds), [false, true])
  assert.equal(paceFor([1]).perSecond, 10)
})

test('the time is shared out among the cells, by rows and windows', () => {
  const base = cells[0]!
  const parts = shares(
    [
      [base, 10],
      [base, 5],
      [{ ...base, paced: false }, 5],
    ],
    thorough,
  )
  assert.ok(Math.abs(parts.reduce((sum, part) => sum + part, 0) - 1) < 1e-9)
  assert.ok(Math.abs(parts[0]! / parts[1]! - 2) < 1e-9)
  assert.ok(parts[2]! < parts[1]!)
})
