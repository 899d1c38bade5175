import assert from 'node:assert/strict'
import { test } from 'node:test'
import {
  LEAST_BEYOND,
  LEAST_RESAMPLED_UNITS,
  quantileDifferences,
  type UnitDurations,
} from '../../../src/experiments/statistics/quantile-bootstrap.ts'
import { seeded } from '../../support/random.ts'
import { callsOfTask, normal, type Random } from './simulated.ts'

/** Tasks with some ties, and some without calls. */
const arm = (random: Random, count: number): UnitDurations =>
  Array.from({ length: count }, () => {
    const slowness = normal(random)
    const calls = random() < 0.1 ? 0 : Math.min(64, callsOfTask(random))
    return Array.from({ length: calls }, () => Math.round(100 * Math.exp(slowness + normal(random))))
  })

/** Lays each resample out in full, drawn in the same order. */
function plainly(units: UnitDurations, quantile: number, resamples: number, random: Random): number[] {
  return Array.from({ length: resamples }, () => {
    const drawn = units.map(() => units[Math.floor(random() * units.length)]!).flat()
    drawn.sort((one, other) => one - other)
    return drawn[Math.ceil(quantile * drawn.length) - 1]!
  })
}

test('the window changes nothing: resamples are those that are laid out in full', () => {
  const random = seeded(1)
  for (const quantile of [0.03, 0.25, 0.5, 0.9, 0.97]) {
    const [control, treatment] = [arm(random, 120), arm(random, 150)]
    const resamples = 199
    const windowed = quantileDifferences(control, treatment, [quantile], {
      alpha: 0.1,
      resamples,
      random: seeded(2),
    })[0]!
    const again = seeded(2)
    const c = plainly(control, quantile, resamples, again)
    const t = plainly(treatment, quantile, resamples, again)
    const differences = t.map((value, at) => value - c[at]!).sort((one, other) => one - other)
    // The 10th of 199 resamples from either end leaves 5 % out; with 120 units the 9th does.
    assert.deepEqual([windowed.low, windowed.high], [differences[8], differences[190]])
  }
})

test('the same seed gives the same intervals, another seed others', () => {
  const [control, treatment] = [arm(seeded(3), 200), arm(seeded(4), 200)]
  const of = (seed: number) =>
    quantileDifferences(control, treatment, [0.5, 0.95], {
      alpha: 0.05,
      resamples: 400,
      random: seeded(seed),
    })
  assert.deepEqual(of(5), of(5))
  assert.notDeepEqual(of(5), of(6))
})

test('swapping the arms mirrors the estimates', () => {
  const [control, treatment] = [arm(seeded(3), 200), arm(seeded(4), 200)]
  const options = { alpha: 0.05, resamples: 99, random: seeded(1) }
  const one = quantileDifferences(control, treatment, [0.5, 0.95], options)
  const other = quantileDifferences(treatment, control, [0.5, 0.95], options)
  assert.deepEqual(
    other.map(({ estimate }) => -estimate),
    one.map(({ estimate }) => estimate),
  )
})

test('too few units, or too few durations beyond a quantile, have an estimate but no interval', () => {
  const options = { alpha: 0.05, resamples: 99, random: seeded(1) }
  const units = (count: number) => Array.from({ length: count }, (_, unit) => [unit])
  const finite = (control: number, treatment: number, quantile: number) => {
    const [difference] = quantileDifferences(units(control), units(treatment), [quantile], options)
    assert.ok(Number.isFinite(difference!.estimate))
    return Number.isFinite(difference!.high - difference!.low)
  }
  const least = LEAST_RESAMPLED_UNITS
  assert.ok(finite(least, least, 0.5))
  assert.ok(!finite(least - 1, least, 0.5) && !finite(least, least - 1, 0.5))
  assert.ok(finite(100 * LEAST_BEYOND, 100 * LEAST_BEYOND, 0.99))
  assert.ok(!finite(100 * LEAST_BEYOND - 1, 100 * LEAST_BEYOND, 0.99))
  assert.ok(!finite(100 * LEAST_BEYOND, 100 * LEAST_BEYOND - 1, 0.01))
})

test('an arm without durations has no quantile', () => {
  const options = { alpha: 0.05, resamples: 99, random: seeded(1) }
  for (const empty of [[], [[]], Array.from({ length: 200 }, () => [])]) {
    const difference = quantileDifferences(arm(seeded(1), 200), empty, [0.5], options)[0]!
    assert.deepEqual(difference, { quantile: 0.5, estimate: NaN, low: -Infinity, high: Infinity })
  }
})

test('20,000 tasks of 64 calls in all, resampled 1,000 times, take about a second of CPU, and less than 3', (t) => {
  const random = seeded(7)
  const full = (count: number) =>
    Array.from({ length: count }, () => {
      const slowness = normal(random)
      return Array.from({ length: 64 }, () => Math.exp(slowness + random()))
    })
  const [control, treatment] = [full(10_000), full(10_000)]
  const before = process.cpuUsage()
  quantileDifferences(control, treatment, [0.5, 0.95, 0.99], { alpha: 0.05, resamples: 1_000, random })
  const { user, system } = process.cpuUsage(before)
  t.diagnostic(`${((user + system) / 1e6).toFixed(2)} s`)
  assert.ok(user + system < 3e6, `${user + system} µs`)
})
