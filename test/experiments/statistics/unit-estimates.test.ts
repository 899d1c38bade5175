import assert from 'node:assert/strict'
import { test } from 'node:test'
import { differenceSequence, LEAST_UNITS } from '../../../src/experiments/statistics/confidence-sequence.ts'
import {
  binomialTails,
  normalQuantile,
  studentQuantile,
} from '../../../src/experiments/statistics/distributions.ts'
import {
  detectableMean,
  detectableProportion,
  unitsForMeans,
  unitsForProportions,
} from '../../../src/experiments/statistics/power.ts'
import {
  clusteredInterval,
  newcombeInterval,
  wilsonInterval,
} from '../../../src/experiments/statistics/proportions.ts'
import { createRandom } from '../../../src/experiments/statistics/random.ts'
import { SAMPLE_RATIO_ALPHA, sampleRatioSequence } from '../../../src/experiments/statistics/significance.ts'
import {
  meanOf,
  ratioOf,
  studentInterval,
  UnitSums,
  welchInterval,
} from '../../../src/experiments/statistics/unit-estimates.ts'

const EVERYTHING = { low: -Infinity, high: Infinity }

test('without units, or with one unit, the truth may be anywhere', () => {
  for (const values of [[], [7]]) {
    const { estimate: _, ...ends } = studentInterval(meanOf(values), 0.05)
    assert.deepEqual(ends, EVERYTHING)
    const { estimate: __, ...difference } = welchInterval(meanOf([1, 2, 3]), meanOf(values), 0.05)
    assert.deepEqual(difference, EVERYTHING)
    assert.deepEqual(
      [clusteredInterval(ratioOf(values.map((value) => [value, 8])), 0.05)].map(({ low, high }) => [
        low,
        high,
      ]),
      [[0, 1]],
    )
  }
})

test('units that are all alike have an interval without width', () => {
  assert.deepEqual(studentInterval(meanOf([4, 4, 4]), 0.05), { estimate: 4, low: 4, high: 4 })
})

test('an arm without variance adds nothing to the interval', () => {
  const { low, high } = welchInterval(meanOf([1, 1, 1, 1]), meanOf([2, 4, 6]), 0.05)
  const alone = studentInterval(meanOf([2, 4, 6]), 0.05)
  assert.ok(Math.abs(low - (alone.low - 1)) < 1e-12 && Math.abs(high - (alone.high - 1)) < 1e-12)
})

test('values far from 0 lose no digits of their variance', () => {
  const far = meanOf([1e9 + 1, 1e9 + 2, 1e9 + 3])
  assert.deepEqual([far.value, far.variance], [1e9 + 2, 1])
})

test('the farthest unit bounds how far any of them is off', () => {
  const units = [
    [0, 1],
    [3, 8],
    [6, 6],
    [1, 20],
  ] as const
  const { value, farthest } = ratioOf(units)
  const meanCalls = 35 / 4
  for (const [failed, calls] of units) assert.ok(farthest >= Math.abs(failed - value * calls) / meanCalls)
  assert.equal(meanOf([-3, 0, 6]).farthest, 5)
  assert.equal(meanOf([-32, 0, 2]).farthest, 22)
})

test('shares stay within what is possible, and calls that all end alike count one for each unit', () => {
  assert.deepEqual(wilsonInterval({ successes: 0, units: 0 }, 0.05), { estimate: NaN, low: 0, high: 1 })
  assert.equal(wilsonInterval({ successes: 0, units: 9 }, 0.05).low, 0)
  assert.equal(wilsonInterval({ successes: 9, units: 9 }, 0.05).high, 1)
  const { low, high } = newcombeInterval({ successes: 0, units: 4 }, { successes: 4, units: 4 }, 1e-9)
  assert.ok(low >= -1 && high <= 1)
  const noFailures = ratioOf([
    [0, 64],
    [0, 3],
    [0, 9],
  ])
  assert.deepEqual(clusteredInterval(noFailures, 0.05), wilsonInterval({ successes: 0, units: 3 }, 0.05))
})

const same = (units: number, value: number) => {
  const sums = new UnitSums()
  for (let unit = 0; unit < units; unit++) sums.add(value)
  return sums.estimate()
}

test('a sequence is infinite below its least units, and while nothing has varied that is not known to be bounded', () => {
  const options = { alpha: 0.05 }
  const planned = { control: 1_000, treatment: 1_000 }
  const ends = ({ low, high }: { low: number; high: number }) => ({ low, high })
  const few = meanOf(Array.from({ length: LEAST_UNITS - 1 }, (_, unit) => unit % 2))
  const enough = meanOf(Array.from({ length: LEAST_UNITS }, (_, unit) => unit % 2))
  assert.deepEqual(ends(differenceSequence(enough, few, planned, options)), EVERYTHING)
  assert.deepEqual(ends(differenceSequence(same(500, 1), same(500, 1), planned, options)), EVERYTHING)
  for (const { low, high } of [
    differenceSequence(enough, enough, planned, options),
    differenceSequence(same(500, 1), same(500, 1), planned, { ...options, reach: 1 }),
  ]) {
    assert.ok(Number.isFinite(low) && low < high && Number.isFinite(high))
  }
})

test('a sequence without a single failure is as wide as some failures would make it', () => {
  const planned = { control: 5_000, treatment: 5_000 }
  const none = differenceSequence(same(5_000, 0), same(5_000, 0), planned, { alpha: 0.05, reach: 1 })
  // The rule of three gives 3 / n for an arm at a single look.
  assert.ok(none.high > 3 / 5_000 && none.high < 9 / 5_000, `${none.high}`)
})

test('the detectable effect of some units is the effect that needs these units', () => {
  const wanted = { alpha: 0.05, power: 0.9, designEffect: 2.5 }
  for (const treatmentShare of [0.5, 0.1, 0.8]) {
    const units = unitsForProportions(0.8, 0.75, { ...wanted, treatmentShare })
    const down = detectableProportion(0.8, units, 'down', wanted)!
    assert.ok(down > -0.05 && down < -0.0499, `${down}`)
    const variance = { control: 4, treatment: 9 }
    const least = detectableMean(
      variance,
      unitsForMeans(0.5, variance, { ...wanted, treatmentShare }),
      wanted,
    )
    assert.ok(least <= 0.5 && least > 0.498, `${least}`)
  }
})

test('no number of units finds a difference of 0, and few units may find none that there can be', () => {
  const wanted = { alpha: 0.05, power: 0.8 }
  assert.deepEqual(unitsForProportions(0.5, 0.5, wanted), { control: Infinity, treatment: Infinity })
  assert.equal(detectableProportion(0.99, { control: 50, treatment: 50 }, 'up', wanted), undefined)
  assert.equal(detectableProportion(1, { control: 50, treatment: 50 }, 'up', wanted), undefined)
})

test('the sequence for sample ratios finds a mismatch, and hardly ever one that is none, looked at with every unit', () => {
  assert.ok(sampleRatioSequence([3, 3], [0.95, 0.05]) > SAMPLE_RATIO_ALPHA)
  assert.equal(sampleRatioSequence([0, 0], [0.5, 0.5]), 1)
  assert.ok(sampleRatioSequence([600, 400], [0.5, 0.5]) < 1e-6)
  assert.ok(sampleRatioSequence([3_350, 3_250, 3_400], [1, 1, 1]) > 0.5)
  // By hand: the Bayes factor of 5 and 0 is (1! 5! 0! / 6!) / 0.5⁵ = 32 / 6; of 2 and 1 the factor is below 1.
  assert.ok(Math.abs(sampleRatioSequence([2, 1], [0.5, 0.5]) - 1) < 1e-12)
  assert.ok(Math.abs(sampleRatioSequence([5, 0], [0.5, 0.5]) - 6 / 32) < 1e-12)
  for (const share of [0.5, 0.05]) {
    const random = createRandom(7)
    let alarms = 0
    for (let run = 0; run < 1_000; run++) {
      const counts = [0, 0]
      for (let unit = 0; unit < 500; unit++) {
        const arm = random() < share ? 1 : 0
        counts[arm]!++
        if (sampleRatioSequence(counts, [1 - share, share]) >= SAMPLE_RATIO_ALPHA) continue
        alarms++
        break
      }
    }
    // At most a false alarm in a thousand is expected; chance gives three or more for 8 % of all seeds.
    assert.ok(alarms <= 3, `${alarms} false alarms at a share of ${share}`)
  }
})

test('arguments that make no sense are refused', () => {
  for (const p of [0, 1, -0.1, 1.1, NaN]) {
    assert.throws(() => normalQuantile(p), RangeError)
    assert.throws(() => studentQuantile(p, 3), RangeError)
  }
  assert.throws(() => studentQuantile(0.9, 0), RangeError)
  assert.throws(() => binomialTails(1, 3, 1.5), RangeError)
  assert.throws(() => sampleRatioSequence([1, 2], [1]), RangeError)
  assert.throws(() => sampleRatioSequence([1, 2], [1, 0]), RangeError)
})
