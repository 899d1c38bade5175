import { normalQuantile } from './distributions.ts'

/**
 * How many units an experiment needs, and what it can find with those that it has: for a two-sided test that is made
 * once, at the end. A confidence sequence, which may be looked at all the time, needs 1.5 to 2 times as many for the
 * same power; half of such experiments end with 1.1 to 1.3 times as many.
 */

/** The requirements on an experiment. */
export interface Wanted {
  /** The probability to find a difference where there is none, in (0, 1). */
  readonly alpha: number
  /** The probability to find the difference that there is, in (0, 1). */
  readonly power: number
  /** The share of units that are in the treatment, in (0, 1). Default: 0.5. */
  readonly treatmentShare?: number
  /**
   * How many times the variance of independent units there is, at least 1, if what is counted is not a unit of its own
   * but in clusters of m with intraclass correlation r: 1 + (m − 1) r (L. Kish, "Survey Sampling", 1965). Default: 1.
   */
  readonly designEffect?: number
}

/** Numbers of units. */
export interface ArmUnits {
  readonly control: number
  readonly treatment: number
}

/**
 * The units that find the difference of two proportions, rounded up in each arm: by the variance of the pooled
 * proportion without a difference, and of both with it (J. Fleiss, A. Tytun and H. Ury, "A Simple Approximation for
 * Calculating Sample Sizes for Comparing Independent Proportions", 1980, without their continuity correction). Infinite
 * where the proportions are equal.
 */
export function unitsForProportions(control: number, treatment: number, wanted: Wanted): ArmUnits {
  const { treatmentShare = 0.5 } = wanted
  // The variance of a difference is that of one unit in all, divided by how many there are.
  const arms = { control: 1 - treatmentShare, treatment: treatmentShare }
  const needed = neededForProportions(control, treatment, arms, wanted)
  return split((needed / (treatment - control)) ** 2, arms)
}

/** The units that find a difference of two means, given the variance of one unit in each arm, rounded up in each arm. */
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
 * The smallest difference of two means that these units find, above 0, given the variance of one unit in each arm.
 * `treatmentShare` does not count here.
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
 * The smallest difference from the control's proportion that these units find, above 0 for one `up`, below 0 for one
 * `down`; undefined where they would not even find the largest that there can be. `treatmentShare` does not count here.
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

/** Halvings of a range of 1 until its ends are neighbours, or 1e-18 apart. */
const HALVINGS = 60

/** How far apart the proportions of two arms must be to be found. */
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
  // A number that is whole but for rounding errors stays whole.
  const whole = (units: number) => Math.ceil(units * (1 - 1e-12))
  return { control: whole(total * share.control), treatment: whole(total * share.treatment) }
}
