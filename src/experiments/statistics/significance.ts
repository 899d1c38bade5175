import type { Interval } from './unit-estimates.ts'

/** Smallest p-value: below it, quantiles of 1 − alpha have no precise digits, and reports show all p-values alike. */
const LEAST_P = 1e-12

/**
 * Returns the two-sided p-value of an estimate's intervals: the alpha for which the interval ends at 0. So p is below
 * alpha exactly if the interval with confidence 1 − alpha excludes 0. The p-value is at least 1e-12; undefined without
 * an interval.
 */
export function pOf(intervalAt: (alpha: number) => Interval): number | undefined {
  const leavesOut = (alpha: number) => {
    const { low, high } = intervalAt(alpha)
    return low > 0 || high < 0
  }
  const { estimate, low, high } = intervalAt(0.5)
  if (!Number.isFinite(low) || !Number.isFinite(high) || low === high) return undefined
  if (estimate === 0) return 1
  if (leavesOut(LEAST_P)) return LEAST_P
  let [holds, excludes] = [Math.log(LEAST_P), 0]
  for (let step = 0; step < 50; step++) {
    const middle = (holds + excludes) / 2
    if (leavesOut(Math.exp(middle))) excludes = middle
    else holds = middle
  }
  return Math.exp(excludes)
}

/**
 * Returns p-values adjusted for several metrics, in the order given. If all metrics with p ≤ alpha are called
 * significant, any of these claims is wrong with probability alpha at most, however the metrics depend on each other
 * (S. Holm, "A Simple Sequentially Rejective Multiple Test Procedure", 1979).
 */
export function holm(ps: readonly number[]): number[] {
  const order = ps.map((_, index) => index).sort((one, other) => ps[one]! - ps[other]!)
  const adjusted = new Array<number>(ps.length)
  let largest = 0
  for (const [rank, index] of order.entries()) {
    largest = Math.max(largest, Math.min(1, (ps.length - rank) * ps[index]!))
    adjusted[index] = largest
  }
  return adjusted
}

/** Below this p-value, units were not assigned as planned. */
export const SAMPLE_RATIO_ALPHA = 0.001

/**
 * Returns the p-value of the test for a sample-ratio mismatch (A. Fabijan et al., "Diagnosing Sample Ratio Mismatch in
 * Online Controlled Experiments", KDD 2019), valid at all looks together: without a mismatch, p falls below alpha at
 * any look with probability alpha at most. `shares` are above 0, in any scale. p is 1 / the Bayes factor of a
 * Dirichlet-multinomial alternative, with a uniform prior over all shares, against the planned shares; this factor is
 * a martingale (M. Lindon and A. Malek, "Anytime-Valid Inference for Multinomial Count Data", 2020). Throws a
 * RangeError if the lists differ in length, have fewer than two entries, or a share is not above 0.
 */
export function sampleRatioSequence(counts: readonly number[], shares: readonly number[]): number {
  if (counts.length !== shares.length || counts.length < 2 || !shares.every((share) => share > 0)) {
    throw new RangeError(`${counts.length} counts for ${shares.length} shares`)
  }
  const whole = sum(shares)
  let factor = logFactorial(counts.length - 1) - logFactorial(sum(counts) + counts.length - 1)
  for (const [arm, count] of counts.entries())
    factor += logFactorial(count) - count * Math.log(shares[arm]! / whole)
  return Math.min(1, Math.exp(-factor))
}

/** Returns ln n!, from 10 on by J. Stirling's series, with an error below 1e-10. */
function logFactorial(n: number): number {
  if (n < 10) return Math.log([1, 1, 2, 6, 24, 120, 720, 5_040, 40_320, 362_880][n]!)
  const x = n + 1
  const series = 1 / (12 * x) - 1 / (360 * x ** 3) + 1 / (1260 * x ** 5) - 1 / (1680 * x ** 7)
  return (x - 0.5) * Math.log(x) - x + 0.5 * Math.log(2 * Math.PI) + series
}

const sum = (values: readonly number[]): number => values.reduce((total, value) => total + value, 0)
