import { normalQuantile } from './distributions.ts'

/**
 * Power of an experiment, for a two-sided test made once, at the end. A confidence sequence, valid at every look, needs
 * 1.5 to 2 times as many units for the same power; half of the experiments with a confidence sequence end with 1.1 to
 * 1.3 times as many.
 */

export interface Wanted {
  /** Probability of finding a difference that does not exist, in (0, 1). */
  readonly alpha: number
  /** Probability of finding an existing difference, in (0, 1). */
  readonly power: number
  /** The treatment's share of units, in (0, 1). Default: 0.5. */
  readonly treatmentShare?: number
  /**
   * Variance relative to independent units, at least 1. For clusters of m with intraclass correlation r: 1 + (m − 1) r
   * (L. Kish, "Survey Sampling", 1965). Default: 1.
   */
  readonly designEffect?: number
}

export interface ArmUnits {
  readonly control: number
  readonly treatment: number
}

/**
 * Returns the units needed to find the difference of two proportions, rounded up in each arm. Uses the variance of the
 * pooled proportion without a difference, and of both proportions with the difference (J. Fleiss, A. Tytun and H. Ury,
 * "A Simple Approximation for Calculating Sample Sizes for Comparing Independent Proportions", 1980, without their
 * continuity correction). Infinite for equal proportions.
 */
export function unitsForProportions(control: number, treatment: number, wanted: Wanted): ArmUnits {
  const { treatmentShare = 0.5 } = wanted
  // The variance of a difference is its variance for a single unit in total, divided by the number of units.
  const arms = { control: 1 - treatmentShare, treatment: treatmentShare }
  const needed = neededForProportions(control, treatment, arms, wanted)
  return split((needed / (treatment - control)) ** 2, arms)
}

/** Returns the units needed to find a difference of means, rounded up in each arm. `variance`: of a unit, by arm. */
export function unitsForMeans(
  difference: number,
  variance: { readonly control: number; readonly treatment: number },
  wanted: Wanted,
): ArmUnits {
  const { treatmentShare = 0.5 } = wanted
  const arms = { control: 1 - treatmentShare, treatment: treatmentShare }
  return split((detectableMean(variance, arms, wanted) / difference) ** 2, arms)
}

/**
 * Returns the smallest detectable difference of means, above 0. `variance`: of a unit, by arm. Ignores
 * `treatmentShare`.
 */
export function detectableMean(
  variance: { readonly control: number; readonly treatment: number },
  units: ArmUnits,
  { alpha, power, designEffect = 1 }: Wanted,
): number {
  const squaredError = variance.control / units.control + variance.treatment / units.treatment
  return (normalQuantile(1 - alpha / 2) + normalQuantile(power)) * Math.sqrt(squaredError * designEffect)
}

/**
 * Returns the smallest detectable difference from the control's proportion, above 0 for `up`, below 0 for `down`;
 * undefined if these units could not even show the largest possible difference. Ignores `treatmentShare`.
 */
export function detectableProportion(
  control: number,
  units: ArmUnits,
  direction: 'up' | 'down',
  wanted: Wanted,
): number | undefined {
  const found = (difference: number) =>
    Math.abs(difference) >= neededForProportions(control, control + difference, units, wanted)
  let enough = direction === 'up' ? 1 - control : -control
  if (enough === 0 || !found(enough)) return undefined
  let tooSmall = 0
  for (let halving = 0; halving < HALVINGS; halving++) {
    const middle = (enough + tooSmall) / 2
    if (found(middle)) enough = middle
    else tooSmall = middle
  }
  return enough
}

/** Halvings until the ends of a range of 1 are neighbours, or 1e-18 apart. */
const HALVINGS = 60

/** Returns the detectable distance between the proportions of two arms. */
function neededForProportions(
  control: number,
  treatment: number,
  units: ArmUnits,
  { alpha, power, designEffect = 1 }: Wanted,
): number {
  const pooled = (control * units.control + treatment * units.treatment) / (units.control + units.treatment)
  const error = (c: number, t: number) =>
    Math.sqrt(designEffect * ((c * (1 - c)) / units.control + (t * (1 - t)) / units.treatment))
  return (
    normalQuantile(1 - alpha / 2) * error(pooled, pooled) + normalQuantile(power) * error(control, treatment)
  )
}

function split(total: number, share: ArmUnits): ArmUnits {
  // Rounding errors must not add a unit to a whole number.
  const whole = (units: number) => Math.ceil(units * (1 - 1e-12))
  return { control: whole(total * share.control), treatment: whole(total * share.treatment) }
}
