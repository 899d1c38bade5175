import { type MetricName, metricOf } from './metrics.ts'
import { failing, succeeding, type UnitSample } from './samples.ts'
import { armInWords, controlOf, type Experiment, minimumEffectOf, splitOf } from './schema.ts'
import { differenceSequence, LEAST_UNITS } from './statistics/confidence-sequence.ts'
import { quantileDifferences, resamplesFor } from './statistics/quantile-bootstrap.ts'
import { createRandom } from './statistics/random.ts'
import { amountInWords } from './statistics/sentences.ts'
import { sampleRatioSequence } from './statistics/significance.ts'
import { type Interval, meanOf, ratioOf, type UnitEstimate } from './statistics/unit-estimates.ts'
import { type Verdict, verdictOf, type VerdictPlan } from './statistics/verdict.ts'

export interface Judgement {
  /** With several treatments, the verdict on the deciding `treatment`. */
  readonly verdict: Verdict
  readonly treatment: string
  /** Finished units, by arm. */
  readonly units: Readonly<Record<string, number>>
  /** The verdict on each treatment, against the control. */
  readonly verdicts: Readonly<Record<string, Verdict>>
}

/** Highest probability of a wrong statement about an experiment, over all looks, treatments and guardrails. */
export const ALPHA = 0.05

/** Largest share of an arm's calls in a single unit: an arm dominated by one unit is no sample. */
const LARGEST_UNIT = 0.2

/** Sequences are narrowest at this multiple of `minimumUnits`. */
const PLANNED = 2

export interface Known {
  /** Units counted at this look. */
  readonly units: readonly UnitSample[]
  /** Units assigned to each arm, including units without results yet. */
  readonly assigned: ReadonlyMap<string, number>
}

/**
 * Returns the judgement of an experiment by its units. `isOver`: no more units or calls will follow. A deciding
 * quantile is judged only at the end: quantiles have no sequence valid at all looks. `areAssumed`: some ends are
 * assumed, so only guardrails on shares of units count.
 */
export function judge(
  experiment: Experiment,
  { units, assigned }: Known,
  { isOver, areAssumed = false }: { readonly isOver: boolean; readonly areAssumed?: boolean },
): Judgement {
  const control = controlOf(experiment)
  const treatments = Object.keys(experiment.arms).filter((arm) => arm !== control)
  const byArm = new Map(Object.keys(experiment.arms).map((arm) => [arm, [] as UnitSample[]]))
  for (const unit of units) byArm.get(unit.arm)?.push(unit)
  const alpha = ALPHA / treatments.length
  const verdicts = treatments.map((treatment) => {
    const arms = { control: byArm.get(control)!, treatment: byArm.get(treatment)! }
    const counts = [assigned.get(control) ?? 0, assigned.get(treatment) ?? 0] as const
    return {
      treatment,
      verdict: verdictOn(experiment, { control, treatment }, { arms, counts }, alpha, { isOver, areAssumed }),
    }
  })
  return judgementOf(verdicts, Object.fromEntries([...byArm].map(([arm, units]) => [arm, units.length])))
}

function judgementOf(
  verdicts: readonly { readonly treatment: string; readonly verdict: Verdict }[],
  units: Judgement['units'],
): Judgement {
  const decisive =
    verdicts.find(({ verdict }) => verdict.harm) ??
    verdicts.find(({ verdict }) => verdict.result === 'better') ??
    verdicts.find(({ verdict }) => !verdict.ends) ??
    verdicts[0]!
  const ends = decisive.verdict.harm || verdicts.every(({ verdict }) => verdict.ends)
  return {
    verdict: { ...decisive.verdict, ends },
    treatment: decisive.treatment,
    units,
    verdicts: Object.fromEntries(verdicts.map(({ treatment, verdict }) => [treatment, verdict])),
  }
}

export interface KnownAndOpen extends Known {
  /** Units not yet over: their ends are unknown. */
  readonly open: ReadonlySet<UnitSample>
  readonly judged: Judgement
}

/**
 * Returns true for metrics with a known worst case of an open unit (failure or success). Durations have no worst case.
 */
const isBounded = (name: MetricName) => metricOf(name).estimator.kind === 'proportion'

/**
 * Returns a judgement valid however the open units end, so a hanging unit cannot hide an arm's harm. A treatment is
 * worse if it stays worse even when all open units of the control fail and all open units of the treatment succeed. At
 * the end, a treatment is better if it stays better in the opposite case. Undefined when neither is certain, and for
 * metrics other than shares of units.
 */
export function judgeWithOpen(
  experiment: Experiment,
  { units, open, assigned, judged }: KnownAndOpen,
  { isOver }: { readonly isOver: boolean },
): Judgement | undefined {
  if (!isBounded(experiment.metric)) return undefined
  const control = controlOf(experiment)
  const ifFailed = (fails: (sample: UnitSample) => boolean) =>
    judge(experiment, { units: endedAs(units, open, fails), assigned }, { isOver, areAssumed: true })
  const told = (assumed: Judgement, failing: 'control' | 'treatment') =>
    hedged(experiment, assumed, judged, { failing, units, open })
  const worst = ifFailed(({ arm }) => arm === control)
  if (worst.verdict.harm || (isOver && worst.verdict.result === 'worse')) return told(worst, 'control')
  if (!isOver) return undefined
  const best = ifFailed(({ arm }) => arm !== control)
  return best.verdict.result === 'better' ? told(best, 'treatment') : undefined
}

/** Ends the open units as `fails` says, and returns all units with at least one ended call. */
function endedAs(
  units: readonly UnitSample[],
  open: ReadonlySet<UnitSample>,
  fails: (sample: UnitSample) => boolean,
): UnitSample[] {
  const ended = (sample: UnitSample) => (fails(sample) ? failing(sample) : succeeding(sample))
  return units.map((sample) => (open.has(sample) ? ended(sample) : sample)).filter(({ calls }) => calls > 0)
}

/**
 * Returns a judgement whose sentence names the assumed ends. The assumed ends are the least favourable ends, so the
 * difference is a minimum, and the sentence separates assumed from measured values. Other treatments keep the verdicts
 * of the cohort, because the assumed ends may favour them.
 */
function hedged(
  experiment: Experiment,
  { treatment, verdict }: Judgement,
  judged: Judgement,
  {
    failing,
    units,
    open,
  }: {
    readonly failing: 'control' | 'treatment'
    readonly units: readonly UnitSample[]
    readonly open: ReadonlySet<UnitSample>
  },
): Judgement {
  const arms = { control: controlOf(experiment), treatment }
  const over = units.filter((sample) => !open.has(sample) && sample.calls > 0)
  const inArm = (arm: string) => over.filter((sample) => sample.arm === arm)
  const compared = { control: inArm(arms.control), treatment: inArm(treatment) }
  const valueIn = (arm: keyof typeof arms) => estimateOf(experiment.metric, compared[arm]).value
  const words = wordsFor(experiment)
  const name = (arm: keyof typeof arms) => armInWords(experiment, arms[arm])
  const [fails, succeeds] =
    failing === 'control'
      ? ([name('control'), name('treatment')] as const)
      : [name('treatment'), name('control')]
  const [finding = '', least = ''] = verdict.sentence.split(/: (.*)/s)
  const sentence =
    `${finding}, however the ${open.size} open ${words} end: at least ${least}, if all in ${fails} fail and all in ` +
    `${succeeds} succeed; measured over the ${compared.control.length + compared.treatment.length} finished ${words}: ` +
    amountInWords(metricOf(experiment.metric), valueIn('treatment') - valueIn('control'))
  const told: Verdict = { ...verdict, sentence, assumed: open.size }
  const counts = Object.fromEntries(Object.keys(experiment.arms).map((arm) => [arm, inArm(arm).length]))
  return { treatment, verdict: told, units: counts, verdicts: { ...judged.verdicts, [treatment]: told } }
}

const wordsFor = ({ assignBy }: Experiment) =>
  assignBy === 'intent' || assignBy === 'agent' ? 'tasks' : 'units'

/** The units of a run at one instant, as plain data for another thread. */
export interface KnownUnits {
  readonly all: readonly UnitSample[]
  /** Indexes into `all`: counted units in `cohort`, unfinished units in `open`. */
  readonly cohort: readonly number[]
  readonly open: readonly number[]
  /** Units assigned to each arm, including units without results yet. */
  readonly assigned: ReadonlyMap<string, number>
}

/** `isOfAll`: the judgement covers all units, however the open units end; otherwise the cohort. */
export interface Judged {
  readonly judgement: Judgement
  readonly isOfAll: boolean
}

/** Judges a run by the cohort or, if the cohort decides nothing, by all units, however the open units end. */
export function judgeUnits(
  experiment: Experiment,
  { all, cohort, open, assigned }: KnownUnits,
  { isOver }: { readonly isOver: boolean },
): Judged {
  const judgement = judgeCohort(experiment, { units: cohort.map((at) => all[at]!), assigned }, { isOver })
  const { result } = judgement.verdict
  if ((result !== 'inconclusive' && result !== 'invalid') || open.length === 0)
    return { judgement, isOfAll: false }
  const unsettled = new Set(open.map((at) => all[at]!))
  const surely = judgeWithOpen(
    experiment,
    { units: all, open: unsettled, assigned, judged: judgement },
    { isOver },
  )
  return surely === undefined ? { judgement, isOfAll: false } : { judgement: surely, isOfAll: true }
}

/**
 * Judges the cohort. A call still under way in the cohort has taken too long and counts as failed. Late calls may still
 * succeed, so a verdict counts only if every end of the late calls gives the same verdict.
 */
function judgeCohort(
  experiment: Experiment,
  { units, assigned }: Known,
  { isOver }: { readonly isOver: boolean },
): Judgement {
  const late = new Set(units.filter(({ underWay }) => underWay > 0))
  const ifFailed = (fails: (sample: UnitSample) => boolean) =>
    judge(experiment, { units: endedAs(units, late, fails), assigned }, { isOver })
  const judgement = ifFailed(() => true)
  if (late.size === 0) return judgement
  const control = controlOf(experiment)
  const others = [ifFailed(({ arm }) => arm === control), ifFailed(({ arm }) => arm !== control)]
  const undecided =
    `${isOver ? 'inconclusive' : 'not decided yet'}: the verdict depends on ${late.size} unfinished ${wordsFor(experiment)}, ` +
    'each with a call under way for more than 5 minutes'
  const verdicts = Object.entries(judgement.verdicts).map(([treatment, verdict]) => {
    const isSure = others.every(({ verdicts }) => {
      const { result, harm } = verdicts[treatment]!
      return result === verdict.result && harm === verdict.harm
    })
    const isOpen = verdict.result === 'inconclusive' || verdict.result === 'invalid'
    if (isSure || isOpen) return { treatment, verdict }
    const told = { result: 'inconclusive', ends: isOver, harm: false, sentence: undecided } as const
    return { treatment, verdict: { ...verdict, ...told } }
  })
  return judgementOf(verdicts, judgement.units)
}

/** Up to these numbers of units, and of durations for quantiles, a judgement takes less than 50 ms. */
const MOST_UNITS = 20_000
const MOST_DURATIONS = 10_000

/** Returns true when the last judgement of a run takes so long that calls should not wait for it. */
export function takesLong({ metric, guardrails }: Experiment, { all }: KnownUnits): boolean {
  if (all.length > MOST_UNITS) return true
  const hasQuantile = [metric, ...guardrails.map((guardrail) => guardrail.metric)].some(
    (name) => metricOf(name).estimator.kind === 'quantile',
  )
  return hasQuantile && durationsIn(all) > MOST_DURATIONS
}

interface TwoArms {
  readonly control: readonly UnitSample[]
  readonly treatment: readonly UnitSample[]
}

function verdictOn(
  experiment: Experiment,
  { control, treatment }: { readonly control: string; readonly treatment: string },
  {
    arms,
    counts,
  }: { readonly arms: TwoArms; readonly counts: readonly [control: number, treatment: number] },
  alpha: number,
  { isOver, areAssumed }: { readonly isOver: boolean; readonly areAssumed: boolean },
): Verdict {
  const { metric, minimumUnits, guardrails, assignBy } = experiment
  const split = splitOf(experiment)
  const shares = [split.get(control)!, split.get(treatment)!] as const
  const planned = {
    control: (PLANNED * minimumUnits * shares[0]) / Math.min(...shares),
    treatment: (PLANNED * minimumUnits * shares[1]) / Math.min(...shares),
  }
  const units = { control: arms.control.length, treatment: arms.treatment.length }
  const sequenceOf = (name: MetricName, level: number) => sequence(name, arms, planned, level, isOver)
  // Guardrails get half of the error probability.
  const level = guardrails.length === 0 ? alpha : alpha / 2
  const plan: VerdictPlan = {
    metric: metricOf(metric),
    minimumEffect: minimumEffectOf(experiment),
    control: armInWords(experiment, control),
    treatment: armInWords(experiment, treatment),
    unitWords: wordsFor(experiment),
    minimumUnits,
    minimumUnitsForHarm: Math.min(minimumUnits, Math.max(LEAST_FOR_HARM, Math.ceil(minimumUnits / 4))),
    alpha: level,
  }
  const unsound = largestUnit(experiment, arms)
  return verdictOf(plan, {
    units,
    measured: {
      control: measuredIn(metric, arms.control),
      treatment: measuredIn(metric, arms.treatment),
    },
    difference: sequenceOf(metric, level),
    // Agents that choose arms also choose how many units each arm gets.
    assigned: { control: counts[0], treatment: counts[1] },
    sampleRatioP: assignBy === 'agent' ? 1 : sampleRatioSequence(counts, shares),
    ...(unsound !== undefined && { unsound }),
    guardrails: guardrails.flatMap((guardrail) => {
      if (areAssumed && !isBounded(guardrail.metric)) return []
      const share = level / guardrails.length
      return {
        metric: metricOf(guardrail.metric),
        margin: guardrail.margin,
        difference: sequenceOf(guardrail.metric, share),
        alpha: share,
      }
    }),
    maxDurationReached: isOver,
  })
}

/** Units each arm needs before the verdict may be harm. */
const LEAST_FOR_HARM = 30

const UNKNOWN: Interval = { estimate: NaN, low: -Infinity, high: Infinity }

function sequence(
  name: MetricName,
  { control, treatment }: TwoArms,
  planned: { readonly control: number; readonly treatment: number },
  alpha: number,
  isOver: boolean,
): Interval {
  const { estimator, unit } = metricOf(name)
  if (estimator.kind === 'quantile') {
    if (!isOver) return UNKNOWN
    const durations = (units: readonly UnitSample[]) => units.map((unit) => unit.durations)
    const options = {
      alpha,
      resamples: resamplesFor(durationsIn(control) + durationsIn(treatment)),
      random: createRandom(1),
    }
    return quantileDifferences(durations(control), durations(treatment), [estimator.q], options)[0]!
  }
  const [c, t] = [estimateOf(name, control), estimateOf(name, treatment)]
  return differenceSequence(c, t, planned, { alpha, ...(unit === 'points' && { reach: 1 }) })
}

const durationsIn = (units: readonly UnitSample[]): number =>
  units.reduce((sum, { durations }) => sum + durations.length, 0)

function measuredIn(name: MetricName, units: readonly UnitSample[]): number {
  return metricOf(name).estimator.kind === 'quantile' ? units.length : estimateOf(name, units).units
}

/** Estimates a share, a mean or a ratio from the units of an arm. Throws a RangeError for quantiles. */
export function estimateOf(name: MetricName, units: readonly UnitSample[]): UnitEstimate {
  const { estimator } = metricOf(name)
  switch (estimator.kind) {
    case 'proportion':
      return meanOf(
        units.flatMap((unit) => {
          const holds = estimator.holds(unit)
          return holds === undefined ? [] : holds ? 1 : 0
        }),
      )
    case 'ratio':
      return ratioOf(units.map((unit) => [estimator.of(unit), estimator.by(unit)]))
    case 'quantile':
      throw new RangeError(`${name} is no sum over units`)
  }
}

/** Returns a sentence about a unit with too many of its arm's calls; undefined for none. */
function largestUnit(experiment: Experiment, { control, treatment }: TwoArms): string | undefined {
  for (const units of [control, treatment]) {
    if (units.length < LEAST_UNITS) continue
    let all = 0
    let most: UnitSample | undefined
    for (const unit of units) {
      all += unit.calls
      if (most === undefined || unit.calls > most.calls) most = unit
    }
    if (most === undefined || most.calls <= LARGEST_UNIT * all) continue
    const percent = Math.round((100 * most.calls) / all)
    return `one unit has ${percent} % of the calls of ${armInWords(experiment, most.arm)}: they are one observation, not many`
  }
  return undefined
}
