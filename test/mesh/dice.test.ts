import assert from 'node:assert/strict'
import { test } from 'node:test'
import { createDice, type Dice } from '../../src/mesh/dice.ts'

const KEYS = Array.from({ length: 10_000 }, (_, n) => `session-7/call-${n}`)

/** 99.9th percentile of the chi-square distribution with 99 degrees of freedom. */
const CRITICAL = 148.23

/** How far counts are from equal. */
function chiSquare(counts: readonly number[]): number {
  const expected = counts.reduce((sum, count) => sum + count, 0) / counts.length
  return counts.reduce((sum, count) => sum + (count - expected) ** 2 / expected, 0)
}

/** Counts of what falls into each of 100 cells. */
function cells(draws: readonly number[]): number[] {
  const counts = new Array<number>(100).fill(0)
  for (const draw of draws) counts[Math.floor(draw * 100)]!++
  return counts
}

test('the same key gives the same draw, whatever was drawn before', () => {
  const forward = KEYS.map((key) => createDice(42)(key, 'fault'))
  const dice = createDice(42)
  dice('anything', 'else')
  const backward = KEYS.toReversed().map((key) => dice(key, 'fault'))
  assert.deepEqual(backward.toReversed(), forward)
})

test('draws are pinned: a seed means the same in every version', () => {
  const dice = createDice(42)
  assert.equal(dice('call-1', 'fault'), 0.8438145115773189)
  assert.equal(dice('', ''), 0.499468445768112)
})

test('every draw is in [0, 1)', () => {
  const dice = createDice(7)
  for (const key of [...KEYS, '', '\0', 'ü😀', 'x'.repeat(10_000)]) {
    const draw = dice(key, 'fault')
    assert.ok(draw >= 0 && draw < 1, `${draw}`)
  }
})

test('draws over keys that only count up are uniform, for every seed', () => {
  for (const seed of [0, 1, 2, 42, 20_260_728, 2 ** 31, -1]) {
    const dice = createDice(seed)
    const statistic = chiSquare(cells(KEYS.map((key) => dice(key, 'fault'))))
    assert.ok(statistic < CRITICAL, `seed ${seed}: ${statistic}`)
  }
})

test('rates below one in a thousand are met', () => {
  const dice = createDice(42)
  let hits = 0
  for (let n = 0; n < 1_000_000; n++) if (dice(`call-${n}`, 'fault') < 0.0005) hits++
  assert.ok(Math.abs(hits - 500) < 4 * Math.sqrt(500), `${hits} of 500`)
})

/** How far two dice are from independent of each other, over a grid of 10 by 10. */
function dependence(one: (key: string) => number, other: (key: string) => number): number {
  return chiSquare(cells(KEYS.map((key) => (Math.floor(one(key) * 10) + other(key)) / 10)))
}

test('draws for two purposes, and of two seeds, know nothing of each other', () => {
  const on = (dice: Dice, purpose: string) => (key: string) => dice(key, purpose)
  for (const seed of [0, 1, 42]) {
    const dice = createDice(seed)
    const purposes = dependence(on(dice, 'fault 0'), on(dice, 'fault 1'))
    assert.ok(purposes < CRITICAL, `purposes under seed ${seed}: ${purposes}`)
    const seeds = dependence(on(dice, 'fault'), on(createDice(seed + 1), 'fault'))
    assert.ok(seeds < CRITICAL, `seeds ${seed} and ${seed + 1}: ${seeds}`)
  }
})

test('a key and a purpose do not run together', () => {
  const dice = createDice(42)
  const draws = [
    dice('ab', 'c'),
    dice('a', 'bc'),
    dice('abc', ''),
    dice('', 'abc'),
    dice('1:a', '1'),
    dice('a', '1'),
  ]
  assert.equal(new Set(draws).size, draws.length)
})
