import assert from 'node:assert/strict'
import { test } from 'node:test'
import { createKeyedRandom, type KeyedRandom, type Seed } from '../../src/mesh/keyed-random.ts'

const KEYS = Array.from({ length: 10_000 }, (_, n) => `session-7/call-${n}`)

/** 99.9th percentile of the chi-square distribution with 99 degrees of freedom. */
const CRITICAL = 148.23

/** Returns the chi-square distance of counts from equal. */
function chiSquare(counts: readonly number[]): number {
  const expected = counts.reduce((sum, count) => sum + count, 0) / counts.length
  return counts.reduce((sum, count) => sum + (count - expected) ** 2 / expected, 0)
}

/** Counts the draws in each of 100 cells. */
function cells(draws: readonly number[]): number[] {
  const counts = new Array<number>(100).fill(0)
  for (const draw of draws) counts[Math.floor(draw * 100)]!++
  return counts
}

test('the same key gives the same draw, whatever was drawn before', () => {
  const forward = KEYS.map((key) => createKeyedRandom(42)(key, 'fault'))
  const random = createKeyedRandom(42)
  random('anything', 'else')
  const backward = KEYS.toReversed().map((key) => random(key, 'fault'))
  assert.deepEqual(backward.toReversed(), forward)
})

test('draws are pinned: a seed means the same in every version', () => {
  const random = createKeyedRandom(42)
  assert.equal(random('call-1', 'fault'), 0.8438145115773189)
  assert.equal(random('', ''), 0.499468445768112)
})

test('every draw is in [0, 1)', () => {
  const random = createKeyedRandom(7)
  for (const key of [...KEYS, '', '\0', 'ü😀', 'x'.repeat(10_000)]) {
    const draw = random(key, 'fault')
    assert.ok(draw >= 0 && draw < 1, `${draw}`)
  }
})

test('draws over keys that only count up are uniform, for every seed', () => {
  for (const seed of [0, 1, 2, 42, 20_260_728, 2 ** 31, -1]) {
    const random = createKeyedRandom(seed)
    const statistic = chiSquare(cells(KEYS.map((key) => random(key, 'fault'))))
    assert.ok(statistic < CRITICAL, `seed ${seed}: ${statistic}`)
  }
})

test('rates below one in a thousand are met', () => {
  const random = createKeyedRandom(42)
  let hits = 0
  for (let n = 0; n < 1_000_000; n++) if (random(`call-${n}`, 'fault') < 0.0005) hits++
  assert.ok(Math.abs(hits - 500) < 4 * Math.sqrt(500), `${hits} of 500`)
})

/** Returns the chi-square distance of two draws from independence, on a grid of 10 by 10. */
function dependence(one: (key: string) => number, other: (key: string) => number): number {
  return chiSquare(cells(KEYS.map((key) => (Math.floor(one(key) * 10) + other(key)) / 10)))
}

test('draws for two purposes, and of two seeds, know nothing of each other', () => {
  const on = (random: KeyedRandom, purpose: string) => (key: string) => random(key, purpose)
  for (const seed of [0, 1, 42]) {
    const random = createKeyedRandom(seed)
    const purposes = dependence(on(random, 'fault 0'), on(random, 'fault 1'))
    assert.ok(purposes < CRITICAL, `purposes under seed ${seed}: ${purposes}`)
    const seeds = dependence(on(random, 'fault'), on(createKeyedRandom(seed + 1), 'fault'))
    assert.ok(seeds < CRITICAL, `seeds ${seed} and ${seed + 1}: ${seeds}`)
  }
})

test('all 64 bits of a seed count, and each of them gives other draws', () => {
  const on = (seed: Seed) => (key: string) => createKeyedRandom(seed)(key, 'fault')
  const seeds = Array.from({ length: 64 }, (_, bit) => String(2n ** BigInt(bit)))
  const draws = new Set(['0', ...seeds].map((seed) => on(seed)('call')))
  assert.equal(draws.size, 65)
  for (const seed of ['4294967296', '9007199254740993', '18446744073709551615']) {
    const other = String(BigInt(seed) ^ (1n << 33n))
    const statistic = dependence(on(seed), on(other))
    assert.ok(statistic < CRITICAL, `seeds ${seed} and ${other}: ${statistic}`)
  }
  assert.equal(on(42)('call'), on('42')('call'))
})

/** First draws of the seeds 0, 42 and 2^32 - 1. */
const DRAWS = [0.9773910132854389, 0.10648910685677682, 0.4603030721408211]

test('draws of a seed are the same for good', () => {
  const draws = [0, 42, 4_294_967_295].map((seed) => createKeyedRandom(seed)('call', 'fault'))
  assert.deepEqual(draws, DRAWS)
})

test('a key and a purpose cannot be confused with another pair', () => {
  const random = createKeyedRandom(42)
  const draws = [
    random('ab', 'c'),
    random('a', 'bc'),
    random('abc', ''),
    random('', 'abc'),
    random('1:a', '1'),
    random('a', '1'),
  ]
  assert.equal(new Set(draws).size, draws.length)
})
