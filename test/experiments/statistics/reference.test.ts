import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { test } from 'node:test'
import { sequenceHalfWidth } from '../../../src/experiments/statistics/confidence-sequence.ts'
import {
  binomialTails,
  normalQuantile,
  normalTails,
  studentQuantile,
  studentTails,
} from '../../../src/experiments/statistics/distributions.ts'
import type { Tails } from '../../../src/experiments/statistics/incomplete.ts'
import { mcNemarExact, pairedInterval } from '../../../src/experiments/statistics/pairs.ts'
import {
  detectableMean,
  detectableProportion,
  unitsForMeans,
  unitsForProportions,
} from '../../../src/experiments/statistics/power.ts'
import {
  clusteredDifferenceInterval,
  clusteredInterval,
  newcombeInterval,
  newcombePairedInterval,
  wilsonInterval,
} from '../../../src/experiments/statistics/proportions.ts'
import { quantileDifferences } from '../../../src/experiments/statistics/quantile-bootstrap.ts'
import { holm, sampleRatioSequence } from '../../../src/experiments/statistics/significance.ts'
import {
  type Interval,
  meanOf,
  ratioOf,
  squaredError,
  studentInterval,
  welchInterval,
} from '../../../src/experiments/statistics/unit-estimates.ts'

/** Results of R, scipy and statsmodels, as reference.py writes them. */
interface Reference {
  readonly versions: Readonly<Record<string, string>>
  readonly cases: readonly {
    readonly statistic: string
    readonly args: readonly (number | readonly number[])[]
    readonly call: string
    readonly value: readonly number[]
  }[]
}

const reference = JSON.parse(
  readFileSync(new URL('../../../../test/experiments/statistics/reference.json', import.meta.url), 'utf8'),
) as Reference

const both = ({ lower, upper }: Tails) => [lower, upper]
const ends = ({ low, high }: Interval) => [low, high]
const all = ({ estimate, low, high }: Interval) => [estimate, low, high]

type Numbers = readonly number[]

/** Each statistic as a function of plain numbers, in the form of reference.py. */
const statistics: Readonly<Record<string, (...args: never[]) => Numbers>> = {
  normalTails: (z: number) => both(normalTails(z)),
  normalQuantile: (p: number) => [normalQuantile(p)],
  studentTails: (t: number, df: number) => both(studentTails(t, df)),
  studentQuantile: (p: number, df: number) => [studentQuantile(p, df)],
  binomialTails: (k: number, n: number, p: number) => both(binomialTails(k, n, p)),
  wilsonInterval: (successes: number, units: number, alpha: number) =>
    ends(wilsonInterval({ successes, units }, alpha)),
  newcombeInterval: (xc: number, nc: number, xt: number, nt: number, alpha: number) =>
    ends(newcombeInterval({ successes: xc, units: nc }, { successes: xt, units: nt }, alpha)),
  newcombePairedInterval: (
    bothSucceed: number,
    controlOnly: number,
    treatmentOnly: number,
    neither: number,
    alpha: number,
  ) => all(newcombePairedInterval({ both: bothSucceed, controlOnly, treatmentOnly, neither }, alpha)),
  studentInterval: (values: Numbers, alpha: number) => all(studentInterval(meanOf(values), alpha)),
  welchInterval: (control: Numbers, treatment: Numbers, alpha: number) =>
    all(welchInterval(meanOf(control), meanOf(treatment), alpha)),
  pairedInterval: (control: Numbers, treatment: Numbers, alpha: number) =>
    all(pairedInterval(zip(control, treatment), alpha)),
  ratioOf: (numerators: Numbers, denominators: Numbers) => {
    const ratio = ratioOf(zip(numerators, denominators))
    return [ratio.value, squaredError(ratio)]
  },
  clusteredInterval: (numerators: Numbers, denominators: Numbers, alpha: number) =>
    all(clusteredInterval(ratioOf(zip(numerators, denominators)), alpha)),
  clusteredDifferenceInterval: (yc: Numbers, xc: Numbers, yt: Numbers, xt: Numbers, alpha: number) =>
    all(clusteredDifferenceInterval(ratioOf(zip(yc, xc)), ratioOf(zip(yt, xt)), alpha)),
  sequenceHalfWidth: (n: number, variance: number, planned: number, alpha: number) => [
    sequenceHalfWidth(variance / n, n / planned, alpha),
  ],
  mcNemarExact: (b: number, c: number) => [mcNemarExact(b, c)],
  holm: (ps: Numbers) => holm(ps),
  sampleRatioSequence: (counts: Numbers, shares: Numbers) => [sampleRatioSequence(counts, shares)],
  unitsForProportions: (
    control: number,
    treatment: number,
    alpha: number,
    power: number,
    treatmentShare: number,
  ) => [unitsForProportions(control, treatment, { alpha, power, treatmentShare }).control],
  unitsForMeans: (difference: number, sd: number, alpha: number, power: number, treatmentShare: number) => {
    const variance = { control: sd ** 2, treatment: sd ** 2 }
    return [unitsForMeans(difference, variance, { alpha, power, treatmentShare }).control]
  },
  detectableProportion: (control: number, units: number, power: number) => [
    detectableProportion(control, { control: units, treatment: units }, 'up', { alpha: 0.05, power })!,
  ],
  detectableMean: (nc: number, vc: number, nt: number, vt: number, alpha: number, power: number) => [
    detectableMean({ control: vc, treatment: vt }, { control: nc, treatment: nt }, { alpha, power }),
  ],
  quantile: (values: Numbers, quantile: number) => {
    const nothing = { alpha: 0.05, resamples: 1, random: () => 0 }
    return [quantileDifferences([[0]], [values], [quantile], nothing)[0]!.estimate]
  },
}

const zip = (one: Numbers, other: Numbers) => one.map((value, index) => [value, other[index]!] as const)

/** Relative to the expected value, however small; absolute if the expected value is 0. */
const apart = (value: number, expected: number) =>
  Math.abs(value - expected) / (expected === 0 ? 1e-6 : Math.abs(expected))

for (const [statistic, compute] of Object.entries(statistics)) {
  const cases = reference.cases.filter((one) => one.statistic === statistic)
  // R iterates here and stops early.
  const tolerance = statistic.startsWith('clustered') ? 1e-7 : 1e-9
  test(`${statistic} agrees with R, scipy or statsmodels in ${cases.length} cases`, () => {
    assert.ok(cases.length > 0)
    for (const { args, call, value } of cases) {
      const computed = compute(...(args as never[]))
      assert.equal(computed.length, value.length, call)
      for (const [index, expected] of value.entries()) {
        const one = computed[index]!
        assert.ok(apart(one, expected) < tolerance, `${call}: ${one} instead of ${expected} (${index})`)
      }
    }
  })
}

test('every case of the reference is compared, and the reference names its versions', () => {
  const unknown = reference.cases.filter(({ statistic }) => !(statistic in statistics))
  assert.deepEqual(unknown, [])
  assert.deepEqual(Object.keys(reference.versions), ['R', 'python', 'scipy', 'statsmodels'])
})

test('the paired interval is the published one of two worked examples', () => {
  const rounded = (interval: Interval) => all(interval).map((value) => Number(value.toFixed(3)))
  // D. Altman et al., "Statistics with Confidence", 2nd edition, 2000, p. 52.
  const altman = { both: 14, controlOnly: 0, treatmentOnly: 5, neither: 22 }
  assert.deepEqual(rounded(newcombePairedInterval(altman, 0.05)), [0.122, 0.011, 0.226])
  // M. Fagerland, S. Lydersen and P. Laake, Statistics in Medicine 33, 2014, 2850–2875.
  const fagerland = { both: 1, controlOnly: 7, treatmentOnly: 1, neither: 12 }
  assert.deepEqual(rounded(newcombePairedInterval(fagerland, 0.05)), [-0.286, -0.507, -0.026])
})
