import { chiSquareSurvival, normalTails } from './distributions.ts'

/** The two-sided p-value of an estimate that is normal about 0 with this standard error, which must be above 0. */
export function twoSidedP(estimate: number, standardError: number): number {
  return 2 * normalTails(-Math.abs(estimate) / standardError).lower
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

/** How well the numbers of units in the arms agree with the shares that they were to have. */
export interface SampleRatio {
  /** Pearson's chi-square, with one degree of freedom less than there are arms. */
  readonly statistic: number
  readonly p: number
  /** The p-value is below `SAMPLE_RATIO_ALPHA`: units were lost or assigned otherwise, and the arms are not alike. */
  readonly mismatch: boolean
}

/**
 * The test for a sample-ratio mismatch (A. Fabijan et al., "Diagnosing Sample Ratio Mismatch in Online Controlled
 * Experiments", KDD 2019). `shares` are above 0, in any scale. Throws a RangeError where the two lists do not fit.
 */
export function sampleRatio(counts: readonly number[], shares: readonly number[]): SampleRatio {
  if (counts.length !== shares.length || counts.length < 2 || !shares.every((share) => share > 0)) {
    throw new RangeError(`${counts.length} counts for ${shares.length} shares`)
  }
  const units = sum(counts)
  if (units === 0) return { statistic: 0, p: 1, mismatch: false }
  const whole = sum(shares)
  const terms = counts.map((count, arm) => {
    const expected = (units * shares[arm]!) / whole
    return (count - expected) ** 2 / expected
  })
  const statistic = sum(terms)
  const p = chiSquareSurvival(statistic, counts.length - 1)
  return { statistic, p, mismatch: p < SAMPLE_RATIO_ALPHA }
}

const sum = (values: readonly number[]): number => values.reduce((total, value) => total + value, 0)
