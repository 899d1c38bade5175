import type { ArmUnits } from './power.ts'
import { differenceInWords, type Metric, pInWords, sizeInWords } from './sentences.ts'
import { SAMPLE_RATIO_ALPHA } from './significance.ts'
import type { Interval } from './unit-estimates.ts'

/** What was agreed before the first unit was assigned. */
export interface VerdictPlan {
  /** What decides. */
  readonly metric: Metric
  /** The smallest difference that matters, in the unit of the metric, ≥ 0. */
  readonly matters: number
  /** What the arms are called: `steady`, `cautious`. */
  readonly control: string
  readonly treatment: string
  /** What the units are called, in the plural: `tasks`. */
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
export interface Guard {
  readonly metric: Metric
  /** Up to this it may get worse, in the unit of the metric, ≥ 0. */
  readonly tolerated: number
  /** The confidence sequence of treatment − control. Several guards share their alpha. */
  readonly difference: Interval
  /** 1 − the confidence of the sequence. */
  readonly alpha: number
}

/** What is known at one look. */
export interface VerdictState {
  readonly units: ArmUnits
  /** The confidence sequence of treatment − control, in the unit of the metric. */
  readonly difference: Interval
  /** The p-value of `sampleRatio`. */
  readonly sampleRatioP: number
  /** Why the units are none, if so: `one agent has 80 % of all calls`, `calls name no task`. */
  readonly unsound?: string
  readonly guards?: readonly Guard[]
  /** The longest time that the experiment may take is over. */
  readonly longestReached: boolean
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
}

/**
 * What an experiment says of its treatment at one look. The first that applies:
 *
 * 1. `invalid`, and ends: the numbers of units in the arms are not those that were assigned (`sampleRatioP` below
 *    `SAMPLE_RATIO_ALPHA`).
 * 2. `invalid`: the units are unsound. More units may mend that, so it ends only when it is over, or with harm.
 * 3. `worse`, with harm, and ends: a guard's sequence lies beyond what is tolerated. From `minimumUnitsForHarm` on.
 * 4. `worse`, and ends: the metric's sequence lies on the worse side of 0. From `minimumUnitsForHarm` on. It is harm
 *    unless it lies within ±`matters`.
 * 5. Below `minimumUnits`: `invalid` when it is over, `inconclusive` before.
 * 6. `better`, and ends: the metric's sequence lies on the better side of 0.
 * 7. `no_difference_found`, and ends: the sequence lies within ±`matters`.
 * 8. When it is over: `no_difference_found` if half the width of the sequence is below `matters`, so that a difference
 *    that matters would have shown; else `inconclusive`.
 * 9. `inconclusive`, and goes on.
 *
 * That a sequence is right at all looks makes 4, 6 and 7 safe whenever they apply first: without a difference, 4 and 6
 * together are said with probability alpha at most. Point 1 is a test at each look, and has its own false alarms: in 50
 * looks about 1 %.
 */
export function verdictOf(plan: VerdictPlan, state: VerdictState): Verdict {
  const { estimate, low, high } = state.difference
  const { control, treatment } = state.units
  return { ...decide(plan, state), difference: estimate, low, high, units: control + treatment }
}

type Decision = Pick<Verdict, 'result' | 'ends' | 'harm' | 'sentence'>

function decide(plan: VerdictPlan, state: VerdictState): Decision {
  const { metric, matters, alpha, minimumUnits, minimumUnitsForHarm = minimumUnits, treatment } = plan
  const { units, difference, sampleRatioP, unsound, guards = [] } = state
  const all = units.control + units.treatment
  const over = state.longestReached || all >= (plan.plannedUnits ?? Infinity)
  const fewest = Math.min(units.control, units.treatment)

  const gain = gainOf(metric, difference)
  const isWithin = difference.low >= -matters && difference.high <= matters
  const harmIsKnown = fewest >= minimumUnitsForHarm
  const hurt = guards.find((guard) => gainOf(guard.metric, guard.difference).high < -guard.tolerated)
  const harmed = harmIsKnown ? hurt : undefined
  const isWorse = harmIsKnown && gain.high < 0
  const harm = harmed !== undefined || (isWorse && !isWithin)

  const inWords = ({ metric, difference, alpha }: Pick<Guard, 'metric' | 'difference' | 'alpha'>) =>
    differenceInWords(metric, difference, alpha, `${all} ${plan.unitWords}`)
  const found = inWords({ metric, difference, alpha })
  const counts = `${units.control} ${plan.unitWords} in ${plan.control} and ${units.treatment} in ${treatment}`
  const mattering = sizeInWords(metric, matters)
  const small = isWithin ? `, less than the ${mattering} that would matter` : ''

  if (sampleRatioP < SAMPLE_RATIO_ALPHA) {
    const sentence = `invalid: ${counts} are not the shares that were planned (${pInWords(sampleRatioP)})`
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
    const sentence = `${over ? 'invalid' : 'not decided yet'}: ${counts}, each needs ${minimumUnits}`
    return { result: over ? 'invalid' : 'inconclusive', ends: over, harm, sentence }
  }
  if (gain.low > 0) {
    return { result: 'better', ends: true, harm, sentence: `${treatment} wins: ${found}${small}` }
  }
  if (isWithin || (over && (difference.high - difference.low) / 2 < matters)) {
    const sentence = `no difference found: with ${treatment} ${found}; ${mattering} would matter`
    return { result: 'no_difference_found', ends: true, harm, sentence }
  }
  const sentence = `${over ? 'inconclusive' : 'not decided yet'}: with ${treatment} ${found}`
  return { result: 'inconclusive', ends: over, harm, sentence }
}

/** A difference as what is gained by it: above 0 is better. */
function gainOf({ better }: Metric, { low, high }: Interval): { low: number; high: number } {
  return better === 'higher' ? { low, high } : { low: -high, high: -low }
}
