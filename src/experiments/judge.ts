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

/** The result of a look at an experiment. */
export interface Judgement {
  /** The verdict on the experiment: with several treatments, the verdict on the treatment that decides. */
  readonly verdict: Verdict
  readonly treatment: string
  /** Number of finished units, by arm. */
  readonly units: Readonly<Record<string, number>>
  /** The verdict on each treatment, against the control. */
  readonly verdicts: Readonly<Record<string, Verdict>>
}

/** The largest probability of a wrong statement about an experiment, over all looks, treatments and guardrails. */
export const ALPHA = 0.05

/** Largest share of an arm's calls in a single unit: an arm with nearly all calls in one unit is no sample. */
const LARGEST_UNIT = 0.2

/** Sequences are narrowest at this multiple of the units each arm must have. */
const PLANNED = 2

/** The input of a judgement. */
export interface Known {
  /** The units whose figures count at this look. */
  readonly units: readonly UnitSample[]
  /** Units assigned to each arm, including units without results yet. */
  readonly assigned: ReadonlyMap<string, number>
}

/**
 * Judges an experiment by its units. `isOver`: nothing more will come. Quantiles have no sequence valid at all looks: a
 * deciding quantile is judged only at the end. `areAssumed`: some ends are assumed, so guardrails other than shares of
 * units say nothing.
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

/** Returns the verdict on an experiment from the verdicts on its treatments. */
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

/** The input of a judgement when units are open. */
export interface KnownAndOpen extends Known {
  /** The units not yet over, whose ends are unknown. */
  readonly open: ReadonlySet<UnitSample>
  readonly judged: Judgement
}

/** Whether open units have a known worst case: failure or success. Nobody knows how long a call may take. */
const isBounded = (name: MetricName) => metricOf(name).estimator.kind === 'proportion'

/**
 * Returns a judgement valid however the open units end: so a hanging unit cannot hide an arm's harm. A treatment is
 * worse if it is worse even when all open units of the control fail, and all open units of the treatment succeed. At
 * the end, a treatment is better if it is better even in the opposite case. Undefined when neither is certain, and for
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

/** Units of which a call has ended, if those that are open end as `fails` says of each of them. */
function endedAs(
  units: readonly UnitSample[],
  open: ReadonlySet<UnitSample>,
  fails: (sample: UnitSample) => boolean,
): UnitSample[] {
  const ended = (sample: UnitSample) => (fails(sample) ? failing(sample) : succeeding(sample))
  return units.map((sample) => (open.has(sample) ? ended(sample) : sample)).filter(({ calls }) => calls > 0)
}

/**
 * The difference is at least so large: it is that of the ends that speak against it. Its sentence tells what is assumed from what
 * was measured; of other treatments it says what is said of the cohort, for these ends may speak for them.
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
    `${finding}, however the ${open.size} open ${words} end: at least ${least}, if those in ${fails} all fail and those in ` +
    `${succeeds} all succeed; measured of the ${compared.control.length + compared.treatment.length} ${words} that are over: ` +
    amountInWords(metricOf(experiment.metric), valueIn('treatment') - valueIn('control'))
  const told: Verdict = { ...verdict, sentence, assumed: open.size }
  const counts = Object.fromEntries(Object.keys(experiment.arms).map((arm) => [arm, inArm(arm).length]))
  return { treatment, verdict: told, units: counts, verdicts: { ...judged.verdicts, [treatment]: told } }
}

const wordsFor = ({ assignBy }: Experiment) =>
  assignBy === 'intent' || assignBy === 'agent' ? 'tasks' : 'units'

/** The units of a run at one instant, as plain data, which may go to another thread. */
export interface KnownUnits {
  readonly all: readonly UnitSample[]
  /** Indexes into `all`: `cohort` for the units whose figures count, `open` for the units that are not over. */
  readonly cohort: readonly number[]
  readonly open: readonly number[]
  /** Units assigned to each arm, including units without results yet. */
  readonly assigned: ReadonlyMap<string, number>
}

/** A judgement. `isOfAll`: of all units, however the open units end; otherwise of the cohort. */
export interface Judged {
  readonly judgement: Judgement
  readonly isOfAll: boolean
}

/** Judges a run by the counted units, or if these decide nothing, by all units, however the open units end. */
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
 * Judges the cohort. A call still under way in the cohort has taken too long, and counts as failed. Such a call may
 * succeed in the end, so a verdict stands only if valid however these calls end.
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
    `${isOver ? 'inconclusive' : 'not decided yet'}: that depends on how ${late.size} ${wordsFor(experiment)} end, ` +
    'of which a call has been under way for more than 5 minutes'
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

/** Most units, and most durations for judged quantiles, with a judgement in less than 50 ms. */
const MOST_UNITS = 20_000
const MOST_DURATIONS = 10_000

/** Whether the last judgement of a run takes so long that calls should not wait for it. */
export function takesLong({ metric, guardrails }: Experiment, { all }: KnownUnits): boolean {
  if (all.length > MOST_UNITS) return true
  const hasQuantile = [metric, ...guardrails.map((guardrail) => guardrail.metric)].some(
    (name) => metricOf(name).estimator.kind === 'quantile',
  )
  return hasQuantile && durationsIn(all) > MOST_DURATIONS
}

/** The units of two arms. */
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
  // Guardrails have half of the error for themselves.
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

/** Harm needs at least this number of units in each arm. */
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

/** Returns the estimate of a share, a mean or a ratio from the units of an arm. */
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

/** Names a unit with too many of its arm's calls. */
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
