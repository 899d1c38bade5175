import type { Interval } from './unit-estimates.ts'

/** Below this, quantiles of 1 − alpha have no digits left, and no report tells p-values apart. */
const LEAST_P = 1e-12

/**
 * The two-sided p-value that belongs to intervals of an estimate: 1 − the confidence of the one that ends at 0, so that it is below alpha
 * exactly where the interval with confidence 1 − alpha leaves 0 out. At least 1e-12. Undefined where there is no interval.
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
 * The p-values of several metrics, each adjusted for all of them, in the order given: to call those significant that
 * are at most alpha is wrong about any of them with probability alpha at most, however they depend on each other
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

/** Below this p-value the numbers of units are not those that were assigned. */
export const SAMPLE_RATIO_ALPHA = 0.001

/**
 * The test for a sample-ratio mismatch (A. Fabijan et al., "Diagnosing Sample Ratio Mismatch in Online Controlled
 * Experiments", KDD 2019), right at all looks together: a p-value that falls below alpha at any look with probability alpha
 * at most, where nothing is wrong. `shares` are above 0, in any scale. It is 1 / the Bayes factor of a Dirichlet-multinomial alternative with a uniform prior over all
 * shares against those that were planned (M. Lindon and A. Malek, "Anytime-Valid Inference for Multinomial Count Data",
 * 2020), which is a martingale. Throws a RangeError where the two lists do not fit.
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

/** The natural logarithm of n!, by the series of J. Stirling from 10 on, where its error is below 1e-10. */
function logFactorial(n: number): number {
  if (n < 10) return Math.log([1, 1, 2, 6, 24, 120, 720, 5_040, 40_320, 362_880][n]!)
  const x = n + 1
  const series = 1 / (12 * x) - 1 / (360 * x ** 3) + 1 / (1260 * x ** 5) - 1 / (1680 * x ** 7)
  return (x - 0.5) * Math.log(x) - x + 0.5 * Math.log(2 * Math.PI) + series
}

const sum = (values: readonly number[]): number => values.reduce((total, value) => total + value, 0)
