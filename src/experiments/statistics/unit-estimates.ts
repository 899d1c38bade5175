import { studentQuantile } from './distributions.ts'

/**
 * Estimates from assignment units. A unit is what was assigned to an arm as a whole, such as an agent's task: calls of
 * one unit depend on each other, so that units are what varies independently, and only their number says how much is
 * known.
 */

/** The estimate of a mean, or of a ratio of two sums, from the units of one arm. */
export interface UnitEstimate {
  /** How many units there are. */
  readonly units: number
  /** The mean or the ratio; NaN while there is nothing to divide by. */
  readonly value: number
  /** The variance of what one unit adds; that of `value` is this divided by `units`. Infinite below two units. */
  readonly variance: number
  /** No unit lies farther than this from what `value` would make of it: a bound, in the unit of `value`. */
  readonly farthest: number
}

/** An estimate and where the truth lies, all three in the unit of what was measured. */
export interface Interval {
  readonly estimate: number
  readonly low: number
  readonly high: number
}

/** The units of one arm, added up one by one, by the updates of B. Welford (1962), which lose no precision. */
export class UnitSums {
  #units = 0
  #above = 0
  #below = 0
  #aboveSquares = 0
  #belowSquares = 0
  #products = 0
  #aboveRange = new Range()
  #belowRange = new Range()

  /** How many units were added. */
  get units(): number {
    return this.#units
  }

  /**
   * Adds a unit with its two sums: what is counted (its failed calls), and out of what (its calls). Without the second
   * it is a unit with one value, of which there is a mean.
   */
  add(numerator: number, denominator = 1): void {
    const n = ++this.#units
    const above = numerator - this.#above
    const below = denominator - this.#below
    this.#above += above / n
    this.#below += below / n
    this.#aboveSquares += above * (numerator - this.#above)
    this.#belowSquares += below * (denominator - this.#below)
    this.#products += above * (denominator - this.#below)
    this.#aboveRange.add(numerator)
    this.#belowRange.add(denominator)
  }

  /**
   * The sum of all numerators divided by that of all denominators; of units with one value, their mean. Its variance
   * is by the delta method (A. Deng, U. Knoblich and J. Lu, "Applying the Delta Method in Metric Analytics", KDD 2018):
   * that of (numerator − ratio · denominator) / mean denominator over the units.
   */
  estimate(): UnitEstimate {
    const units = this.#units
    const value = this.#above / this.#below
    const squares = this.#aboveSquares - 2 * value * this.#products + value * value * this.#belowSquares
    // Rounding can leave a little less than nothing.
    const variance = units < 2 ? Infinity : Math.max(0, squares) / (units - 1) / this.#below ** 2
    const expected = [value * this.#belowRange.low, value * this.#belowRange.high]
    const over = this.#aboveRange.high - Math.min(...expected)
    const under = Math.max(...expected) - this.#aboveRange.low
    return { units, value, variance, farthest: Math.max(over, under) / this.#below }
  }
}

class Range {
  low = Infinity
  high = -Infinity

  add(value: number): void {
    if (value < this.low) this.low = value
    if (value > this.high) this.high = value
  }
}

/** The estimate for units with one value each. */
export function meanOf(values: Iterable<number>): UnitEstimate {
  const sums = new UnitSums()
  for (const value of values) sums.add(value)
  return sums.estimate()
}

/** The estimate for units with a numerator and a denominator each. */
export function ratioOf(units: Iterable<readonly [numerator: number, denominator: number]>): UnitEstimate {
  const sums = new UnitSums()
  for (const [numerator, denominator] of units) sums.add(numerator, denominator)
  return sums.estimate()
}

/** The square of the standard error of an estimate. */
export const squaredError = ({ units, variance }: UnitEstimate): number => variance / units

/**
 * The interval that holds a mean or a ratio with confidence 1 − `alpha`, looked at once: by Student's t. For paired units it
 * is the interval of the paired t-test, if the estimate is of their differences. Infinite below two units.
 */
export function studentInterval(estimate: UnitEstimate, alpha: number): Interval {
  return around(estimate.value, Math.sqrt(squaredError(estimate)), estimate.units - 1, alpha)
}

/**
 * The interval that holds the difference treatment − control with confidence 1 − `alpha`, looked at once: by Student's
 * t with the degrees of freedom of B. Welch (1947), so that variances and sizes of the arms may differ. Infinite
 * where an arm has less than two units. For shares of calls see `clusteredDifferenceInterval`.
 */
export function welchInterval(control: UnitEstimate, treatment: UnitEstimate, alpha: number): Interval {
  const c = squaredError(control)
  const t = squaredError(treatment)
  const df = (c + t) ** 2 / (c ** 2 / (control.units - 1) + t ** 2 / (treatment.units - 1))
  return around(treatment.value - control.value, Math.sqrt(c + t), df, alpha)
}

function around(estimate: number, standardError: number, df: number, alpha: number): Interval {
  if (standardError === 0) return { estimate, low: estimate, high: estimate }
  if (!Number.isFinite(standardError)) return { estimate, low: -Infinity, high: Infinity }
  const half = studentQuantile(1 - alpha / 2, df) * standardError
  return { estimate, low: estimate - half, high: estimate + half }
}
