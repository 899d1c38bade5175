import { binomialTails } from './distributions.ts'
import { type Interval, meanOf, studentInterval, type UnitEstimate } from './unit-estimates.ts'

/**
 * Comparisons of pairs: units of which one is in each arm and which are otherwise alike, such as the same task played
 * under either policy set. Only what differs within pairs counts. For the interval of a difference of shares see
 * `newcombePairedInterval`.
 */

/** The measured values of one pair. */
export type Pair = readonly [control: number, treatment: number]

/**
 * The p-value that pairs with a success in one arm only are as often of the one as of the other (Q. McNemar, 1947):
 * exact and two-sided, by the binomial distribution. 1 where there are no such pairs.
 */
export function mcNemarExact(controlOnly: number, treatmentOnly: number): number {
  const { lower } = binomialTails(Math.min(controlOnly, treatmentOnly), controlOnly + treatmentOnly, 0.5)
  return Math.min(1, 2 * lower)
}

/** The mean of treatment − control over the pairs. */
export function pairedDifference(pairs: Iterable<Pair>): UnitEstimate {
  return meanOf(differences(pairs))
}

function* differences(pairs: Iterable<Pair>): Iterable<number> {
  for (const [control, treatment] of pairs) yield treatment - control
}

/** The interval of the mean difference treatment − control with confidence 1 − `alpha`, looked at once: the paired t. */
export function pairedInterval(pairs: Iterable<Pair>, alpha: number): Interval {
  return studentInterval(pairedDifference(pairs), alpha)
}
