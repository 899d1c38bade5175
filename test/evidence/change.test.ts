import assert from 'node:assert/strict'
import { test, type TestContext } from 'node:test'
import {
  type Change,
  changeIn,
  FEWEST_RUNS,
  limitFor,
  type Observation,
  visibleShift,
} from '../../src/evidence/change.ts'
import { createRandom } from '../../src/experiments/statistics/random.ts'
import { normal, type Random, share } from '../experiments/statistics/simulated.ts'

const HISTORIES = 1_000

/** Spread of the values: the standard deviation of their logarithms. */
const SPREAD = 0.25

/** Last looks after a step at run 20, and without a change. */
const STEP_AT = 20
const LAST = 60

interface History {
  readonly runs: number
  /** Factor of the level at a run, from 0. */
  readonly level: (run: number) => number
  /** Lag-1 autocorrelation of the logarithms. */
  readonly correlation?: number
  readonly noise?: (random: Random) => number
}

const observed = (values: readonly number[]): Observation[] =>
  values.map((value) => ({ value, isCensored: false }))

function valuesOf(random: Random, { runs, level, correlation = 0, noise = normal }: History): Observation[] {
  let state = noise(random)
  return observed(
    Array.from({ length: runs }, (_, run) => {
      if (run > 0) state = correlation * state + Math.sqrt(1 - correlation ** 2) * noise(random)
      return 1_000 * level(run) * Math.exp(SPREAD * state)
    }),
  )
}

/** Returns whether a look after any run finds a change. */
function isFound(values: readonly Observation[], from = FEWEST_RUNS): boolean {
  for (let n = from; n <= values.length; n++) {
    if (changeIn(values.slice(0, n), Math.log).cause === 'change') return true
  }
  return false
}

function found(t: TestContext, seed: number, history: History, from?: number, histories = HISTORIES): number {
  const random = createRandom(seed)
  const rate = share(histories, () => isFound(valuesOf(random, history), from))
  t.diagnostic(`found in ${(100 * rate).toFixed(1)} % of ${histories} histories`)
  return rate
}

/**
 * Two standard errors of a simulated share. The promised shares of two tests are at the edge: 30,000 histories found
 * 90.1 % of the steps of 1.5 (90 % promised), and 9.9 % false alarms under dependence (10 % promised).
 */
const errors = (share: number, histories: number) => 2 * Math.sqrt((share * (1 - share)) / histories)

const constant = () => 1
const step = (factor: number) => (run: number) => (run >= STEP_AT ? factor : 1)

test('pure noise raises a false alarm in at most 5 % of histories, with a look after each of 60 runs', (t) => {
  assert.ok(found(t, 1, { runs: LAST, level: constant }) <= 0.05)
})

const heavy = (random: Random) =>
  normal(random) / Math.sqrt((normal(random) ** 2 + normal(random) ** 2 + normal(random) ** 2) / 3)

test('heavy-tailed noise raises a false alarm in at most 5 % of histories', (t) => {
  assert.ok(found(t, 2, { runs: LAST, level: constant, noise: heavy }) <= 0.05)
})

test('noise of a few distinct values raises a false alarm in at most 5 % of histories', (t) => {
  const noise = (random: Random) => Math.floor(3 * random())
  assert.ok(found(t, 3, { runs: LAST, level: constant, noise }) <= 0.05)
})

test('runs with a lag-1 correlation of 0.3 raise a false alarm in at most 10 % of histories', (t) => {
  const rate = found(t, 4, { runs: LAST, level: constant, correlation: 0.3 })
  assert.ok(rate <= 0.1 + errors(0.1, HISTORIES))
})

test('without the second condition, a lag-1 correlation of 0.3 raises a false alarm in more than 20 %', (t) => {
  const random = createRandom(4)
  const rate = share(HISTORIES, () => {
    const values = valuesOf(random, { runs: LAST, level: constant, correlation: 0.3 })
    for (let n = FEWEST_RUNS; n <= LAST; n++) {
      if (changeIn(values.slice(0, n), Math.log).cause !== 'none') return true
    }
    return false
  })
  t.diagnostic(`${(100 * rate).toFixed(1)} % of ${HISTORIES} histories`)
  assert.ok(rate > 0.2)
})

test('a step of a factor of 2 at run 20 is found within 8 runs in at least 95 % of histories', (t) => {
  assert.ok(found(t, 5, { runs: STEP_AT + 8, level: step(2) }, STEP_AT) >= 0.95)
})

test('a step of a factor of 1.5 at run 20 is found within 20 runs in at least 90 % of histories', (t) => {
  const histories = 4 * HISTORIES
  const rate = found(t, 6, { runs: STEP_AT + 20, level: step(1.5) }, STEP_AT, histories)
  assert.ok(rate >= 0.9 - errors(0.9, histories))
})

test('a step down to a half is found as a step up is', (t) => {
  assert.ok(found(t, 7, { runs: STEP_AT + 8, level: step(0.5) }, STEP_AT) >= 0.95)
})

test('a drift of 4 % a run is found within 25 runs in at least 90 %, after stable runs and from the first run on', (t) => {
  const drift = (from: number) => (run: number) => 1.04 ** Math.max(0, run - from)
  assert.ok(found(t, 8, { runs: 35, level: drift(10) }, 10) >= 0.9)
  assert.ok(found(t, 9, { runs: 26, level: drift(0) }) >= 0.9)
})

test('a visible shift is found at a single look in about 90 % of histories', (t) => {
  for (const n of [18, 24, 40, 60, 120]) {
    const random = createRandom(n)
    const shift = visibleShift(n)!
    const level = (run: number) => (run >= n / 2 ? Math.exp(SPREAD * shift) : 1)
    const rate = share(HISTORIES, () => isFound(valuesOf(random, { runs: n, level }), n))
    t.diagnostic(`${n} runs: ${shift.toFixed(2)} deviations are found in ${(100 * rate).toFixed(1)} %`)
    assert.ok(rate > 0.85 && rate < 0.96)
  }
})

test('the limit grows after 60 values', () => {
  assert.equal(limitFor(8), 3.35)
  assert.equal(limitFor(60), 3.35)
  assert.ok(Math.abs(limitFor(120) - 3.81) < 0.01)
  assert.ok(limitFor(240) > 4.1 && limitFor(240) < 4.3)
})

test('the statistic without ties is the standardised rank sum of the best split', () => {
  const values = [4, 3, 1, 2, 9, 12, 7, 11, 8, 10, 6, 5]
  const { statistic, split, shape } = changeIn(observed(values), Math.log)
  // The eight later ranks add up to 68; a random order has the mean 52 and the variance 4 · 8 · 13 / 12.
  assert.equal(shape, 'step')
  assert.equal(split, 4)
  assert.ok(Math.abs(statistic - 16 / Math.sqrt((4 * 8 * 13) / 12)) < 1e-12)
})

test('ties share their midrank, and the variance is corrected for ties', () => {
  const values = [1, 1, 1, 1, 2, 2, 2, 2, 1, 2, 2, 1]
  const { statistic, split, shape } = changeIn(observed(values), Math.log)
  // U of the later eight is 6 · 4 + 2 · 4 / 2 = 28, and 16 is expected. Six values are 1, six are 2.
  const variance = ((4 * 8) / 12) * (13 - (2 * (6 ** 3 - 6)) / (12 * 11))
  assert.deepEqual([shape, split], ['step', 4])
  assert.ok(Math.abs(statistic - 12 / Math.sqrt(variance)) < 1e-12)
})

test('equal values have no change', () => {
  for (const value of [0, 0.1, 1e9]) {
    const change: Change = changeIn(observed(Array<number>(30).fill(value)), (one) => one)
    assert.equal(change.statistic, 0)
    assert.equal(change.cause, 'none')
    assert.equal(change.p, 1)
  }
})

test('a censored value counts above the values up to its bound, and as equal to others', () => {
  const value = (run: number): Observation =>
    run < 12 ? { value: 100 + (run % 5), isCensored: false } : { value: 3_000, isCensored: true }
  const late = changeIn(
    Array.from({ length: 24 }, (_, run) => value(run)),
    Math.log,
  )
  assert.equal(late.cause, 'change')
  assert.equal(late.split, 12)
  assert.ok(late.statistic > 0)
  // A watch that ended early says nothing about longer values.
  const early = Array.from({ length: 24 }, (_, run): Observation =>
    run < 12 ? value(run) : { value: 50, isCensored: true },
  )
  assert.ok(Math.abs(changeIn(early, Math.log).statistic) < 2)
})

test('fewer than 8 values have no statistic', () => {
  assert.throws(() => changeIn(observed([1, 2, 3, 4, 5, 6, 7]), Math.log), RangeError)
})
