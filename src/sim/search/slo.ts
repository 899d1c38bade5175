import { deviation, mean } from '../statistics.ts'
import type { Millis } from '../../mesh/clock.ts'
import { slisOf, type Tally } from '../tasks.ts'

/** A measure of a run. */
interface Sli {
  readonly about: string
  /** Whether more of it is better. */
  readonly isGood: boolean
  readonly unit: 'ratio' | 'ms'
  readonly of: (tally: Tally, latencies: readonly Millis[]) => number
}

/** The service level indicators that an SLO can be about. */
export const slis = {
  tcsr: {
    about: 'share of the calls that go well',
    isGood: true,
    unit: 'ratio',
    of: (tally) => slisOf(tally).tcsr,
  },
  eta: {
    about: 'the same without calls that the gateway rejects',
    isGood: true,
    unit: 'ratio',
    of: (tally) => slisOf(tally).eta,
  },
  blast_radius: {
    about: 'share of the tasks of which a call goes wrong',
    isGood: false,
    unit: 'ratio',
    of: (tally) => slisOf(tally).blastRadius,
  },
  p95: {
    about: 'what 95 % of the calls do not take longer than',
    isGood: false,
    unit: 'ms',
    of: (_, latencies) => latencies.toSorted((a, b) => a - b)[Math.ceil(latencies.length * 0.95) - 1] ?? 0,
  },
} as const satisfies Readonly<Record<string, Sli>>

export type SliName = keyof typeof slis

/** An objective: a ratio in (0, 1), or for `p95` milliseconds above 0. */
export interface Slo {
  readonly sli: SliName
  readonly target: number
}

/**
 * How far a value lies beyond the objective, in terms of what that allows: 0 at the boundary, negative where it is met. Of
 * `tcsr=0.999`, 0.9985 is 0.5: half as many failures again as it allows.
 */
export function excessOf({ sli, target }: Slo, value: number): number {
  const { isGood } = slis[sli]
  return isGood ? (target - value) / (1 - target) : (value - target) / target
}

/** Beyond this it is an outage, and no near miss: five times what the objective allows. */
export const OUTAGE = 4

/** How a value stands to an objective: see `judge`. */
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
 * The mean of several seeds. It violates the objective when it lies beyond by more than its standard error, is uncertain when it
 * lies beyond by less, and within otherwise.
 */
export function judge(slo: Slo, values: readonly number[]): Measured {
  const middle = mean(values)
  const standardError = deviation(values) / Math.sqrt(values.length)
  const excess = excessOf(slo, middle)
  const standing = standingOf(slo, middle, standardError, excess)
  return { values, mean: middle, standardError, excess, standing }
}

function standingOf(slo: Slo, mean: number, standardError: number, excess: number): Standing {
  if (excess > OUTAGE) return 'outage'
  if (excess <= 0) return 'within'
  return Math.abs(mean - slo.target) > standardError ? 'violating' : 'uncertain'
}

/** Whether an objective is met by more than the standard error of the mean. */
export const isClearlyWithin = (slo: Slo, { mean, standardError, standing }: Measured): boolean =>
  standing === 'within' && Math.abs(mean - slo.target) > standardError
