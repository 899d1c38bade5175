import type { ArmUnits } from './power.ts'
import { differenceInWords, type Metric, pInWords, sizeInWords } from './sentences.ts'
import { SAMPLE_RATIO_ALPHA } from './significance.ts'
import type { Interval } from './unit-estimates.ts'

/** The plan that was agreed before the first unit was assigned. */
export interface VerdictPlan {
  /** The metric that decides. */
  readonly metric: Metric
  /** The smallest difference that matters, in the unit of the metric, ≥ 0. */
  readonly minimumEffect: number
  /** The names of the arms: `steady`, `cautious`. */
  readonly control: string
  readonly treatment: string
  /** The name of the units, in the plural: `tasks`. */
  readonly unitWords: string
  /** So many units each arm must have before anything but harm is decided. */
  readonly minimumUnits: number
  /** So many units each arm must have before harm is decided: at most `minimumUnits`. Default: `minimumUnits`. */
  readonly minimumUnitsForHarm?: number
  /** 1 − the confidence of the metric's sequence, in (0, 1). */
  readonly alpha: number
  /** With so many units in both arms together it is over. Default: never. */
  readonly plannedUnits?: number
}

/** Another metric, which the treatment must not make worse. */
export interface Guardrail {
  readonly metric: Metric
  /** Up to this it may get worse, in the unit of the metric, ≥ 0. */
  readonly margin: number
  /** The confidence sequence of treatment − control. Several guardrails share their alpha. */
  readonly difference: Interval
  /** 1 − the confidence of the sequence. */
  readonly alpha: number
}

/** The state of an experiment at one look. */
export interface VerdictState {
  readonly units: ArmUnits
  /** The confidence sequence of treatment − control, in the unit of the metric. */
  readonly difference: Interval
  /** How many units the metric is known of, where that is not all of them. */
  readonly measured?: ArmUnits
  /** How many units were assigned to each arm, those included that say nothing yet, and the p-value that `sampleRatioSequence` has for that. */
  readonly assigned: ArmUnits
  readonly sampleRatioP: number
  /** Why the units are none, if so: `one agent has 80 % of all calls`, `calls name no task`. */
  readonly unsound?: string
  readonly guardrails?: readonly Guardrail[]
  /** The longest time that the experiment may take is over. */
  readonly maxDurationReached: boolean
}

export type VerdictResult = 'better' | 'worse' | 'no_difference_found' | 'inconclusive' | 'invalid'

export interface Verdict {
  readonly result: VerdictResult
  /** There is no use in going on. Without it, `result` is what it would be if it ended now. */
  readonly ends: boolean
  /** The treatment does harm that matters: it should be taken back now. */
  readonly harm: boolean
  /** For an engineer on call, with its numbers. */
  readonly sentence: string
  readonly difference: number
  readonly low: number
  readonly high: number
  /** In both arms together. */
  readonly units: number
  /** Units whose end is assumed: then `difference`, `low` and `high` are the least that is sure. Default: none. */
  readonly assumed?: number
}

/**
 * Returns the verdict on the treatment at one look. The first point that applies:
 *
 * 1. `invalid`, and ends: the arms were not assigned the shares of units that were planned (`sampleRatioP` below
 *    `SAMPLE_RATIO_ALPHA`).
 * 2. `invalid`: the units are unsound. More units may mend that, so it ends only when it is over, or with harm.
 * 3. `worse`, with harm, and ends: a guardrail's sequence lies beyond what is tolerated. From `minimumUnitsForHarm` on.
 * 4. `worse`, and ends: the metric's sequence lies on the worse side of 0. From `minimumUnitsForHarm` on. It is harm if it
 *    lies beyond `minimumEffect` as a whole.
 * 5. Below `minimumUnits`: `invalid` when it is over, `inconclusive` before.
 * 6. `better`, and ends: the metric's sequence lies on the better side of 0.
 * 7. `no_difference_found`, and ends: the sequence lies within ±`minimumEffect`.
 * 8. `inconclusive`; it goes on unless it is over.
 *
 * Sequences are right at all looks: so 4, 6 and 7 are safe whenever they apply first. Without a difference, 4 and 6
 * together are said with probability alpha at most. Point 1 is right at all looks, too, and has false alarms of its own in
 * one experiment of a thousand at most.
 */
export function verdictOf(plan: VerdictPlan, state: VerdictState): Verdict {
  const { estimate, low, high } = state.difference
  const { control, treatment } = state.units
  return { ...decide(plan, state), difference: estimate, low, high, units: control + treatment }
}

type Decision = Pick<Verdict, 'result' | 'ends' | 'harm' | 'sentence'>

function decide(plan: VerdictPlan, state: VerdictState): Decision {
  const { metric, minimumEffect, alpha, minimumUnits, minimumUnitsForHarm = minimumUnits, treatment } = plan
  const { units, measured = units, difference, assigned, sampleRatioP, unsound, guardrails = [] } = state
  const all = measured.control + measured.treatment
  const over = state.maxDurationReached || units.control + units.treatment >= (plan.plannedUnits ?? Infinity)
  const fewest = Math.min(measured.control, measured.treatment)

  const gain = gainOf(metric, difference)
  const isWithin = difference.low >= -minimumEffect && difference.high <= minimumEffect
  const harmIsKnown = fewest >= minimumUnitsForHarm
  const hurt = guardrails.find(
    (guardrail) => gainOf(guardrail.metric, guardrail.difference).high < -guardrail.margin,
  )
  const harmed = harmIsKnown ? hurt : undefined
  const isWorse = harmIsKnown && gain.high < 0
  const harm = harmed !== undefined || (isWorse && gain.high < -minimumEffect)

  const inWords = ({ metric, difference, alpha }: Pick<Guardrail, 'metric' | 'difference' | 'alpha'>) =>
    differenceInWords(metric, difference, alpha, `${all} ${plan.unitWords}`)
  const found = inWords({ metric, difference, alpha })
  const countsOf = ({ control, treatment: treated }: ArmUnits) =>
    `${control} ${plan.unitWords} in ${plan.control} and ${treated} in ${treatment}`
  const mattering = sizeInWords(metric, minimumEffect)
  const small = isWithin ? `, less than the ${mattering} that would matter` : ''

  if (sampleRatioP < SAMPLE_RATIO_ALPHA) {
    const sentence = `invalid: assigned were ${countsOf(assigned)}, which are not the shares that were planned (${pInWords(sampleRatioP)})`
    return { result: 'invalid', ends: true, harm, sentence }
  }
  if (unsound !== undefined) {
    return { result: 'invalid', ends: over || harm, harm, sentence: `invalid: ${unsound}` }
  }
  if (harmed !== undefined) {
    const though = gain.low > 0 ? `, though ${found}` : ''
    const sentence = `${treatment} does harm: ${inWords(harmed)}${though}`
    return { result: 'worse', ends: true, harm, sentence }
  }
  if (isWorse) return { result: 'worse', ends: true, harm, sentence: `${treatment} loses: ${found}${small}` }
  if (fewest < minimumUnits) {
    const sentence = `${over ? 'invalid' : 'not decided yet'}: ${countsOf(measured)}, each needs ${minimumUnits}`
    return { result: over ? 'invalid' : 'inconclusive', ends: over, harm, sentence }
  }
  if (gain.low > 0) {
    return { result: 'better', ends: true, harm, sentence: `${treatment} wins: ${found}${small}` }
  }
  if (isWithin) {
    const sentence = `no difference found: with ${treatment} ${found}; ${mattering} would matter`
    return { result: 'no_difference_found', ends: true, harm, sentence }
  }
  const isKnown = Number.isFinite(difference.low) || Number.isFinite(difference.high)
  const known = isKnown ? `with ${treatment} ${found}` : `too little is known of ${metric.name}`
  const sentence = `${over ? 'inconclusive' : 'not decided yet'}: ${known}`
  return { result: 'inconclusive', ends: over, harm, sentence }
}

/** A difference as what is gained by it: above 0 is better. */
function gainOf({ better }: Metric, { low, high }: Interval): { low: number; high: number } {
  return better === 'higher' ? { low, high } : { low: -high, high: -low }
}
