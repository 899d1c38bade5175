import { binomialTails } from './distributions.ts'
import { type Interval, meanOf, studentInterval, type UnitEstimate } from './unit-estimates.ts'

/**
 * Comparisons of pairs: alike units, a unit in each arm, such as the same task played under either policy set. Only
 * differences within pairs count. For the interval of a difference of shares see `newcombePairedInterval`.
 */

export type Pair = readonly [control: number, treatment: number]

/**
 * Returns the p-value of McNemar's test (1947). Its hypothesis: pairs with a success in one arm only are equally
 * frequent for both arms. The test is exact and two-sided, by the binomial distribution. Returns 1 without such pairs.
 */
export function mcNemarExact(controlOnly: number, treatmentOnly: number): number {
  const { lower } = binomialTails(Math.min(controlOnly, treatmentOnly), controlOnly + treatmentOnly, 0.5)
  return Math.min(1, 2 * lower)
}

/** Returns the mean of treatment − control over the pairs. */
export function pairedDifference(pairs: Iterable<Pair>): UnitEstimate {
  return meanOf(differences(pairs))
}

function* differences(pairs: Iterable<Pair>): Iterable<number> {
  for (const [control, treatment] of pairs) yield treatment - control
}

/** Returns the paired-t interval of treatment − control with confidence 1 − `alpha`, for a single look. */
export function pairedInterval(pairs: Iterable<Pair>, alpha: number): Interval {
  return studentInterval(pairedDifference(pairs), alpha)
}
