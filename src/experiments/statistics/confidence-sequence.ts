import { type Interval, type UnitEstimate } from './unit-estimates.ts'

/**
 * Confidence sequences: intervals that hold the truth at all looks together with confidence 1 − alpha, however often
 * and for whatever reason people look or stop. They use the normal mixture of H. Robbins (1970) in its asymptotic form
 * (I. Waudby-Smith, D. Arbour, R. Sinha, E. Kennedy and A. Ramdas, "Time-uniform central limit theory and asymptotic
 * confidence sequences", 2021). For a mean with variance s² over n units, half the width is
 *
 *   s · √( 2 (nρ² + 1) / (n²ρ²) · ln( √(nρ² + 1) / α ) ),   ρ² = (−2 ln α + ln(−2 ln α + 1)) / N,
 *
 * narrowest at N units.
 *
 * **Two arms.** A difference of two means or ratios has the squared error V = s_c²/n_c + s_t²/n_t. For arms of any
 * sizes, however they grow, differences at two looks have the covariance V of the later look (D. Scharfstein, A.
 * Tsiatis and J. Robins, "Semiparametric Efficiency and Its Implication on the Design and Analysis of
 * Group-Sequential Studies", 1997). So difference / V is a Brownian motion in the time 1 / V, the information. The
 * same bound holds in this time: s² / n becomes V, and n / N becomes V(planned) / V, the present over the planned
 * information. With planned shares, V(planned) / V equals n / N. Unlike a number of units, V(planned) / V stays right
 * when shares differ or change.
 *
 * **Rare and far units.** An arm without failures among 400 units does not have the variance 0, and a single slow
 * call can double a mean. So each arm's variance (not its estimate) counts one more unit, as far off as the farthest
 * unit of either arm. If the largest distance is known, as for shares of successes, the variance counts two units at
 * this distance, if larger: A. Agresti and B. Caffo (2000) add a success and a failure. Without these units, a
 * treatment with a tenth of 4000 units "differs" from an equal control in a third of all experiments if 1 % fail;
 * with them, in one of 500. From `LEAST_UNITS` units on, at 100 looks with alpha = 0.05, at most 3 % of experiments are
 * wrong: with shares of 0.1 % to 97 %, failed calls in tasks, lognormal durations with σ up to 2, and treatments with
 * 2 % to 95 % of all units.
 */

/** With fewer units in an arm, the sequence is infinitely wide. */
export const LEAST_UNITS = 20

export interface SequenceOptions {
  /** Probability of ever missing the truth, in (0, 1). */
  readonly alpha: number
  /** Largest distance of a unit from the mean, if known: 1 for a share of successes. Default: unknown. */
  readonly reach?: number
}

/** Returns half the width of a sequence. `fraction`: present over planned information. */
export function sequenceHalfWidth(squaredError: number, fraction: number, alpha: number): number {
  const squared = -2 * Math.log(alpha)
  const time = (squared + Math.log1p(squared)) * fraction
  return Math.sqrt(squaredError * (1 + 1 / time) * (squared + Math.log1p(time)))
}

/** Returns the sequence of treatment − control (means or ratios), narrowest at `planned`. Infinite without variance. */
export function differenceSequence(
  control: UnitEstimate,
  treatment: UnitEstimate,
  planned: { readonly control: number; readonly treatment: number },
  { alpha, reach = 0 }: SequenceOptions,
): Interval {
  const farthest = Math.max(control.farthest, treatment.farthest)
  const c = withFarthest(control, farthest, reach)
  const t = withFarthest(treatment, farthest, reach)
  return around(
    treatment.value - control.value,
    Math.min(control.units, treatment.units),
    c / control.units + t / treatment.units,
    c / planned.control + t / planned.treatment,
    alpha,
  )
}

/** Returns the variance with an extra unit at distance `farthest`, or two at `reach`. */
const withFarthest = ({ units, variance }: UnitEstimate, farthest: number, reach: number): number =>
  variance + Math.max(farthest ** 2, 2 * reach ** 2) / units

function around(
  estimate: number,
  units: number,
  squaredError: number,
  plannedSquaredError: number,
  alpha: number,
): Interval {
  if (units < LEAST_UNITS || !(squaredError > 0)) return { estimate, low: -Infinity, high: Infinity }
  const half = sequenceHalfWidth(squaredError, plannedSquaredError / squaredError, alpha)
  return { estimate, low: estimate - half, high: estimate + half }
}
