import type { ArmUnits } from './power.ts'
import { differenceInWords, type Metric, pInWords, sizeInWords } from './sentences.ts'
import { SAMPLE_RATIO_ALPHA } from './significance.ts'
import type { Interval } from './unit-estimates.ts'

/** The plan, agreed before the first unit was assigned. */
export interface VerdictPlan {
  readonly metric: Metric
  /** The smallest relevant difference, in the unit of the metric, ≥ 0. */
  readonly minimumEffect: number
  /** Names of the arms: `steady`, `cautious`. */
  readonly control: string
  readonly treatment: string
  /** The units in the plural: `tasks`. */
  readonly unitWords: string
  /** Units each arm needs before any decision except harm. */
  readonly minimumUnits: number
  /** Units each arm needs before a decision for harm, at most `minimumUnits`. Default: `minimumUnits`. */
  readonly minimumUnitsForHarm?: number
  /** 1 − the confidence of the metric's sequence, in (0, 1). */
  readonly alpha: number
  /** Units in both arms together that end the experiment. Default: never. */
  readonly plannedUnits?: number
}

/** Another metric the treatment must not worsen. */
export interface Guardrail {
  readonly metric: Metric
  /** Tolerated worsening, in the unit of the metric, ≥ 0. */
  readonly margin: number
  /** The confidence sequence of treatment − control. Several guardrails share their alpha. */
  readonly difference: Interval
  /** 1 − the confidence of the sequence. */
  readonly alpha: number
}

export interface VerdictState {
  readonly units: ArmUnits
  /** The confidence sequence of treatment − control, in the unit of the metric. */
  readonly difference: Interval
  /** Units with a known metric. Default: all. */
  readonly measured?: ArmUnits
  /** Units assigned to each arm, units without results included, and the p-value of `sampleRatioSequence` for them. */
  readonly assigned: ArmUnits
  readonly sampleRatioP: number
  /** Why the units are unsound: `one agent has 80 % of all calls`, `calls name no task`. */
  readonly unsound?: string
  readonly guardrails?: readonly Guardrail[]
  readonly maxDurationReached: boolean
}

export type VerdictResult = 'better' | 'worse' | 'no_difference_found' | 'inconclusive' | 'invalid'

export interface Verdict {
  readonly result: VerdictResult
  /** The experiment should end. If false, `result` is a preview: the result of ending now. */
  readonly ends: boolean
  /** The treatment does relevant harm: undo it now. */
  readonly harm: boolean
  /** The verdict as a sentence with numbers, for an engineer on call. */
  readonly sentence: string
  readonly difference: number
  readonly low: number
  readonly high: number
  /** Number of units in both arms together. */
  readonly units: number
  /**
   * Number of units with an assumed end; `difference`, `low` and `high` then assume the least favourable ends. Default:
   * 0.
   */
  readonly assumed?: number
}

/**
 * Returns the verdict on the treatment at a look: the first applicable point. "Over" means that the maximum duration
 * or the planned units are reached.
 *
 * 1. `invalid`, and ends: units were not assigned in the planned shares (`sampleRatioP` below `SAMPLE_RATIO_ALPHA`).
 * 2. `invalid`: the units are unsound. Ends only when over, or with harm, because more units may help.
 * 3. `worse`, with harm, and ends: a guardrail's sequence lies beyond its margin. From `minimumUnitsForHarm` on.
 * 4. `worse`, and ends: the metric's sequence lies on the worse side of 0. From `minimumUnitsForHarm` on. With harm if
 *    the whole sequence lies beyond `minimumEffect`.
 * 5. Below `minimumUnits`: `invalid` when over, `inconclusive` before.
 * 6. `better`, and ends: the metric's sequence lies on the better side of 0.
 * 7. `no_difference_found`, and ends: the sequence lies within ±`minimumEffect`.
 * 8. `inconclusive`; ends only when over.
 *
 * Sequences are valid at all looks, so 4, 6 and 7 are safe at any look. Without a difference, 4 or 6 occurs with
 * probability alpha at most. Point 1 is valid at all looks too; its false alarms: at most 1 experiment in 1000.
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
    const sentence = `invalid: units were not assigned in the planned shares: ${countsOf(assigned)} (${pInWords(sampleRatioP)})`
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

/** Returns a difference as a gain: above 0 is better. */
function gainOf({ better }: Metric, { low, high }: Interval): { low: number; high: number } {
  return better === 'higher' ? { low, high } : { low: -high, high: -low }
}
