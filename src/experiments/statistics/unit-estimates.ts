import { studentQuantile } from './distributions.ts'

/**
 * Estimates from assignment units. A unit, such as an agent's task, is assigned to an arm as a whole. Calls of a unit
 * depend on each other; only units vary independently, so their number decides the precision.
 */

/** The estimate of a mean, or of a ratio of two sums, from the units of an arm. */
export interface UnitEstimate {
  readonly units: number
  /** The mean or the ratio; NaN while the divisor is 0. */
  readonly value: number
  /** The variance of a unit's contribution; `value` has the variance `variance / units`. Infinite below two units. */
  readonly variance: number
  /** A bound on the distance of any unit from its expectation under `value`, in the unit of `value`. */
  readonly farthest: number
}

/** An estimate with an interval, in the unit of the measured values. */
export interface Interval {
  readonly estimate: number
  readonly low: number
  readonly high: number
}

/** Running sums over the units of an arm, by the updates of B. Welford (1962), without loss of precision. */
export class UnitSums {
  #units = 0
  #above = 0
  #below = 0
  #aboveSquares = 0
  #belowSquares = 0
  #products = 0
  #aboveRange = new Range()
  #belowRange = new Range()

  get units(): number {
    return this.#units
  }

  /** Adds a unit of a ratio, such as its failed calls and its calls; with only a numerator, a value for a mean. */
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
   * Returns the sum of the numerators divided by the sum of the denominators. Its variance is by the delta method
   * (A. Deng, U. Knoblich and J. Lu, "Applying the Delta Method in Metric Analytics", KDD 2018): the variance of
   * (numerator − ratio · denominator) / mean denominator over the units.
   */
  estimate(): UnitEstimate {
    const units = this.#units
    const value = this.#above / this.#below
    const squares = this.#aboveSquares - 2 * value * this.#products + value * value * this.#belowSquares
    // Rounding may make `squares` slightly negative.
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

/** Returns the estimate for units with a value each. */
export function meanOf(values: Iterable<number>): UnitEstimate {
  const sums = new UnitSums()
  for (const value of values) sums.add(value)
  return sums.estimate()
}

/** Returns the estimate for units with a numerator and a denominator each. */
export function ratioOf(units: Iterable<readonly [numerator: number, denominator: number]>): UnitEstimate {
  const sums = new UnitSums()
  for (const [numerator, denominator] of units) sums.add(numerator, denominator)
  return sums.estimate()
}

export const squaredError = ({ units, variance }: UnitEstimate): number => variance / units

/**
 * Returns the interval of a mean or a ratio with confidence 1 − `alpha`, for a single look: by Student's t. For an
 * estimate of paired differences, the interval of the paired t-test. Infinite below two units.
 */
export function studentInterval(estimate: UnitEstimate, alpha: number): Interval {
  return around(estimate.value, Math.sqrt(squaredError(estimate)), estimate.units - 1, alpha)
}

/**
 * Returns the interval of treatment − control with confidence 1 − `alpha`, for a single look: by Student's t with the
 * degrees of freedom of B. Welch (1947), so variances and sizes of the arms may differ. Infinite if an arm has fewer
 * than two units. For shares of calls see `clusteredDifferenceInterval`.
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
