import { judge } from '../../claims/judge.ts'
import { type Subject, subjects } from '../../claims/subjects.ts'
import { mean, quantile, standardError } from '../statistics.ts'
import type { Millis } from '../../mesh/clock.ts'
import { slisOf, type Tally } from '../tasks.ts'

/** Functions that measure each subject of SLOs in a run. */
export const slis = {
  tcsr: (tally) => slisOf(tally).tcsr,
  eta: (tally) => slisOf(tally).eta,
  blast_radius: (tally) => slisOf(tally).blastRadius,
  p95: (_, latencies) => quantile(latencies, 0.95) || 0,
} as const satisfies Partial<Record<Subject, (tally: Tally, latencies: readonly Millis[]) => number>>

export type SliName = keyof typeof slis

export const sliNames = Object.keys(slis) as SliName[]

/** An objective. The target is a ratio in (0, 1); for `p95`, a number of milliseconds above 0. */
export interface Slo {
  readonly sli: SliName
  readonly target: number
}

/**
 * Returns how far a value lies beyond the objective, relative to the allowance: 0 at the boundary, negative when met.
 * Example: for `tcsr=0.999`, the value 0.9985 gives 0.5, because it has 50 % more failures than allowed.
 */
export function excessOf({ sli, target }: Slo, value: number): number {
  return subjects[sli].better === 'higher' ? (target - value) / (1 - target) : (value - target) / target
}

/** A violation with a larger excess is an outage: more than five times the allowance. */
export const OUTAGE = 4

/** A value's relation to the objective: see `measuredBy`. */
export type Standing = 'within' | 'uncertain' | 'violating' | 'outage'

export interface Measured {
  /** One value for each seed. */
  readonly values: readonly number[]
  readonly mean: number
  /** Standard error of the mean; 0 for a single value. */
  readonly standardError: number
  /** Excess of the mean. */
  readonly excess: number
  readonly standing: Standing
}

/**
 * Returns mean, error and standing of the values of several seeds. The standing is `within` if the mean meets the
 * objective. Otherwise it is `violating` if the mean misses the objective by more than its standard error, `uncertain`
 * if by less, and `outage` beyond `OUTAGE`.
 */
export function measuredBy(slo: Slo, values: readonly number[]): Measured {
  const error = standardError(values)
  const measured = { values, mean: mean(values), standardError: error, excess: excessOf(slo, mean(values)) }
  return { ...measured, standing: standingOf(slo, measured) }
}

function standingOf({ sli, target }: Slo, measured: Omit<Measured, 'standing'>): Standing {
  const { mean: middle, standardError: error, excess } = measured
  if (excess > OUTAGE) return 'outage'
  const bound = { operator: subjects[sli].better === 'higher' ? '>=' : '<=', value: target } as const
  if (judge([bound], middle) === true) return 'within'
  return judge([bound], { least: middle - error, most: middle + error }) === false ? 'violating' : 'uncertain'
}

/** Returns true if the mean meets the objective by more than its standard error. */
export const isClearlyWithin = (slo: Slo, { mean, standardError, standing }: Measured): boolean =>
  standing === 'within' && Math.abs(mean - slo.target) > standardError
