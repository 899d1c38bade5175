import type { Millis } from '../mesh/clock.ts'
import { ALPHA, estimateOf } from './judge.ts'
import type { Look, Run } from './experiments.ts'
import { type MetricName, metricNames, metricOf } from './metrics.ts'
import type { UnitSample } from './samples.ts'
import { controlOf, type Experiment, mattersOf, splitOf } from './schema.ts'
import { unitsForMeans } from './statistics/power.ts'
import { clusteredDifferenceInterval, newcombeInterval } from './statistics/proportions.ts'
import { quantileDifferences, resamplesFor } from './statistics/quantile-bootstrap.ts'
import { createRandom } from './statistics/random.ts'
import { holm, sampleRatioSequence, twoSidedP } from './statistics/significance.ts'
import { sizeInWords } from './statistics/sentences.ts'
import { type Interval, squaredError, type UnitEstimate, welchInterval } from './statistics/unit-estimates.ts'
import type { Verdict } from './statistics/verdict.ts'

/** A setting in which arms differ: what each of them has, as JSON; undefined where it has none. */
export interface SettingDifference {
  /** Such as `retry.attempts`. */
  readonly setting: string
  readonly byArm: Readonly<Record<string, string | undefined>>
}

/** One metric, with what each treatment makes of it. */
export interface MetricReport {
  readonly name: MetricName
  readonly about: string
  readonly unit: 'points' | 'ms' | 'count'
  readonly better: 'higher' | 'lower'
  /** Whether it decides. */
  readonly decides: boolean
  /** Its value in each arm; NaN where there is nothing to compute it from. */
  readonly values: Readonly<Record<string, number>>
  /** Of each treatment: treatment minus control with a 95 % interval, looked at once. */
  readonly differences: Readonly<
    Record<string, Interval & { readonly p: number | undefined; readonly adjustedP: number | undefined }>
  >
}

/**
 * All that is known of an experiment, as plain data. Differences are treatment minus control, shares in [0, 1]. As JSON,
 * numbers that are not finite are null, and what is undefined is missing.
 */
export interface Report {
  readonly name: string
  readonly hypothesis: string
  /** What decides. */
  readonly metric: MetricName
  /** The smallest difference of it that matters, in its unit, ≥ 0. */
  readonly matters: number
  /** So many units each arm needs before the verdict may end the experiment. */
  readonly minimum: number
  /** That of the sequence of each treatment, in (0, 1); of all of them together it is 95 %. */
  readonly confidence: number
  readonly state: 'running' | 'ended' | 'not_started'
  readonly control: string
  /** Each arm with its policy set, its share of what takes part, and its units. */
  readonly arms: readonly {
    readonly name: string
    readonly set: string
    readonly share: number
    readonly units: number
  }[]
  readonly settings: readonly SettingDifference[]
  readonly verdict: Verdict | undefined
  readonly treatment: string | undefined
  /** Of each treatment, against the control; empty before it has run. */
  readonly verdicts: Readonly<Record<string, Verdict>>
  /** ISO 8601. */
  readonly startedAt: string | undefined
  readonly endedAt: string | undefined
  readonly endedBecause: string | undefined
  readonly ranMs: Millis | undefined
  readonly looks: readonly Look[]
  readonly metrics: readonly MetricReport[]
  /** p-value of the test whether units came to the arms as was planned; undefined where agents choose. */
  readonly sampleRatioP: number | undefined
  /** Calls that matched, by how they were assigned. */
  readonly calls: {
    readonly inArms: number
    readonly fallback: number
    readonly notDrawn: number
    readonly excluded: number
    readonly dropped: number
  }
  /** What became of injected faults, by arm and fate. */
  readonly fates: Readonly<Record<string, Readonly<Record<string, number>>>>
  /** What arms do share, and how that may blur a difference. */
  readonly interference: readonly string[]
  /** What would change the verdict. */
  readonly next: string
}

export interface ReportParts {
  readonly experiment: Experiment
  readonly run: Run | undefined
  /** Effective settings of each arm by policy, where they say anything at all. */
  readonly settingsOf: (set: string) => Readonly<Record<string, unknown>>
  /** On the monotonic clock. */
  readonly now: Millis
}

/** Puts together what is known of an experiment. Takes up to a second of CPU where there are tens of thousands of units. */
export function reportOn({ experiment, run, settingsOf, now }: ReportParts): Report {
  const control = controlOf(experiment)
  const treatments = Object.keys(experiment.arms).filter((arm) => arm !== control)
  const split = splitOf(experiment)
  const samples = run?.samples.all() ?? []
  const byArm = new Map(Object.keys(experiment.arms).map((arm) => [arm, [] as UnitSample[]]))
  for (const sample of samples) if (sample.calls > 0) byArm.get(sample.arm)?.push(sample)
  const counts = [...byArm.values()].map((units) => units.length)
  const verdict = run?.judgement.verdict
  return {
    name: experiment.name,
    hypothesis: hypothesisOf(experiment, control, treatments),
    metric: experiment.metric,
    matters: mattersOf(experiment),
    minimum: experiment.minimum,
    confidence: 1 - ALPHA / treatments.length,
    state: run === undefined ? 'not_started' : run.end === undefined ? 'running' : 'ended',
    control,
    arms: [...split].map(([name, share]) => ({
      name,
      set: experiment.arms[name]!,
      share: share * experiment.share,
      units: byArm.get(name)!.length,
    })),
    settings: settingDifferences(experiment, settingsOf),
    verdict,
    treatment: run?.judgement.treatment,
    verdicts: run?.judgement.verdicts ?? {},
    startedAt: run && new Date(run.startedAtWall).toISOString(),
    endedAt: run?.end && new Date(run.end.atWall).toISOString(),
    endedBecause: run?.end?.reason,
    ranMs: run && (run.end?.at ?? now) - run.startedAt,
    looks: run?.looks ?? [],
    metrics: metricReports(experiment, control, treatments, byArm),
    sampleRatioP:
      experiment.assignBy === 'agent' ? undefined : sampleRatioSequence(counts, [...split.values()]),
    calls: {
      inArms: samples.reduce((sum, { calls }) => sum + calls, 0),
      fallback: run?.samples.fallback ?? 0,
      notDrawn: run?.samples.out.not_drawn ?? 0,
      excluded: run?.samples.out.excluded ?? 0,
      dropped: run?.samples.dropped ?? 0,
    },
    fates: Object.fromEntries(
      [...(run?.samples.fates ?? [])].map(([arm, fates]) => [arm, Object.fromEntries(fates)]),
    ),
    interference: interferenceIn(experiment, settingsOf),
    next: nextOf(
      experiment,
      verdict,
      { control: split.get(control)!, treatment: split.get(run?.judgement.treatment ?? treatments[0]!)! },
      byArm.get(control)!,
      byArm.get(run?.judgement.treatment ?? treatments[0]!)!,
    ),
  }
}

function hypothesisOf(experiment: Experiment, control: string, treatments: readonly string[]): string {
  const { metric, arms } = experiment
  const { about } = metricOf(metric)
  const sets = treatments.map((arm) => `"${arms[arm]}"`).join(' or ')
  const size = sizeInWords(metricOf(metric), mattersOf(experiment))
  return `Does the policy set ${sets} change ${metric} by ${size} or more, against "${arms[control]}"? That metric decides: ${about[0]!.toLowerCase()}${about.slice(1)}`
}

function metricReports(
  experiment: Experiment,
  control: string,
  treatments: readonly string[],
  byArm: ReadonlyMap<string, readonly UnitSample[]>,
): MetricReport[] {
  const quantiles = quantileReports(control, treatments, byArm)
  const compared = metricNames.map((name) => {
    const quantile = quantiles.get(name)
    if (quantile !== undefined) return { name, ...quantile }
    const values = Object.fromEntries([...byArm].map(([arm, units]) => [arm, estimateOf(name, units).value]))
    const differences = treatments.map((arm) => {
      const [c, t] = [estimateOf(name, byArm.get(control)!), estimateOf(name, byArm.get(arm)!)]
      const error = Math.sqrt(squaredError(c) + squaredError(t))
      const interval = intervalOf(name, c, t)
      const p = Number.isFinite(error) && error > 0 ? twoSidedP(t.value - c.value, error) : undefined
      return [arm, { ...interval, p }] as const
    })
    return { name, values, differences }
  })
  const ps = compared.flatMap(({ differences }) => differences.map(([, { p }]) => p))
  const known = ps.filter((p) => p !== undefined)
  const adjusted = holm(known)
  return compared.map(({ name, values, differences }) => {
    const { about, unit, better } = metricOf(name)
    const told = differences.map(([arm, difference]) => {
      const adjustedP = difference.p === undefined ? undefined : adjusted.shift()
      return [arm, { ...difference, adjustedP }] as const
    })
    const decides = name === experiment.metric
    return { name, about, unit, better, decides, values, differences: Object.fromEntries(told) }
  })
}

/** By the method that fits what the metric is. */
function intervalOf(name: MetricName, control: UnitEstimate, treatment: UnitEstimate): Interval {
  const { estimator, unit } = metricOf(name)
  if (estimator.kind === 'proportion') return newcombeInterval(countOf(control), countOf(treatment), ALPHA)
  return unit === 'points'
    ? clusteredDifferenceInterval(control, treatment, ALPHA)
    : welchInterval(control, treatment, ALPHA)
}

const countOf = ({ units, value }: { readonly units: number; readonly value: number }) => ({
  units,
  successes: units === 0 ? 0 : Math.round(value * units),
})

type Compared = Pick<MetricReport, 'values'> & {
  readonly differences: readonly (readonly [string, Interval & { readonly p: number | undefined }])[]
}

/** All quantiles out of the same resamples. They have intervals, and no p-values. */
function quantileReports(
  control: string,
  treatments: readonly string[],
  byArm: ReadonlyMap<string, readonly UnitSample[]>,
): ReadonlyMap<MetricName, Compared> {
  const wanted = metricNames.flatMap((name) => {
    const { estimator } = metricOf(name)
    return estimator.kind === 'quantile' ? [{ name, q: estimator.q }] : []
  })
  const durations = new Map([...byArm].map(([arm, units]) => [arm, units.map((unit) => unit.durations)]))
  const sorted = new Map([...durations].map(([arm, lists]) => [arm, Float64Array.from(lists.flat()).sort()]))
  const count = [...sorted.values()].reduce((sum, { length }) => sum + length, 0)
  const options = { alpha: ALPHA, resamples: resamplesFor(count), random: createRandom(1) }
  const ofTreatments = treatments.map((arm) => {
    const found = quantileDifferences(
      durations.get(control)!,
      durations.get(arm)!,
      wanted.map(({ q }) => q),
      options,
    )
    return { arm, found }
  })
  return new Map(
    wanted.map(({ name, q }, index) => {
      const values = Object.fromEntries(
        [...sorted].map(([arm, list]) => [arm, list[Math.max(0, Math.ceil(q * list.length) - 1)] ?? NaN]),
      )
      const differences = ofTreatments.map(({ arm, found }) => {
        const { estimate, low, high } = found[index]!
        return [arm, { estimate, low, high, p: undefined }] as const
      })
      return [name, { values, differences }]
    }),
  )
}

/** Where the settings of arms differ, setting by setting. */
function settingDifferences(
  { arms }: Experiment,
  settingsOf: ReportParts['settingsOf'],
): SettingDifference[] {
  const flat = Object.entries(arms).map(
    ([arm, set]) => [arm, new Map(leavesOf(settingsOf(set), ''))] as const,
  )
  const settings = new Set(flat.flatMap(([, leaves]) => [...leaves.keys()]))
  return [...settings].sort().flatMap((setting) => {
    const byArm = Object.fromEntries(flat.map(([arm, leaves]) => [arm, leaves.get(setting)]))
    return new Set(Object.values(byArm)).size === 1 ? [] : [{ setting, byArm }]
  })
}

function* leavesOf(value: unknown, path: string): Iterable<[string, string]> {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) {
    const text = JSON.stringify(value) as string | undefined
    if (text !== undefined) yield [path, text]
    return
  }
  for (const [key, inner] of Object.entries(value))
    yield* leavesOf(inner, path === '' ? key : `${path}.${key}`)
}

/** What arms have in common although they should not. */
function interferenceIn(experiment: Experiment, settingsOf: ReportParts['settingsOf']): string[] {
  const { arms, assignBy, fallback } = experiment
  const quotas = Object.values(arms).some((set) => {
    const { rateLimit } = settingsOf(set) as { rateLimit?: { quota?: unknown } | false }
    return rateLimit !== undefined && rateLimit !== false && rateLimit.quota !== undefined
  })
  return [
    'Servers serve all arms: one that slows down under the calls of one arm slows down for the others.',
    'Slots, rates and concurrency limits of servers are divided by the shares of the arms: each arm has less of them than it would have alone.',
    'Breakers, retry budgets, latency estimates and answers that are kept belong to one arm each; connections and sessions with servers, catalogs and learned schemas are shared.',
    ...(quotas ? ['Quotas of servers are shared: the arms draw on the same calls.'] : []),
    ...(assignBy === 'agent' || fallback === 'exclude'
      ? []
      : [
          `Calls that do not name what they are assigned by go by their ${fallback}; the report counts them.`,
        ]),
  ]
}

/** Power with which the smallest difference that matters would be found, looked at once. */
const POWER = 0.8

function nextOf(
  experiment: Experiment,
  verdict: Verdict | undefined,
  shares: { readonly control: number; readonly treatment: number },
  control: readonly UnitSample[],
  treatment: readonly UnitSample[],
): string {
  if (verdict === undefined) return 'It has not run: start it.'
  const { metric, minimum } = experiment
  const matters = mattersOf(experiment)
  const { estimator } = metricOf(metric)
  if (verdict.result === 'better' || verdict.result === 'worse')
    return 'It was found by a sequence that is right at all looks together: more units would hardly give another verdict.'
  if (verdict.result === 'invalid' && verdict.ends)
    return `More units alone may not help: see to it that the arms get the shares that were planned, that no unit outweighs the others, and that each arm gets ${minimum}.`
  if (estimator.kind === 'quantile')
    return 'Quantiles are judged at the end only: more units make their interval narrower.'
  const [c, t] = [estimateOf(metric, control), estimateOf(metric, treatment)]
  const treatmentShare = shares.treatment / (shares.control + shares.treatment)
  if (c.units < 2 || t.units < 2 || matters === 0) return `Each arm needs ${minimum} units.`
  const needed = unitsForMeans(
    matters,
    { control: c.variance, treatment: t.variance },
    { alpha: ALPHA / (Object.keys(experiment.arms).length - 1), power: POWER, treatmentShare },
  )
  if (!Number.isFinite(needed.control) || needed.control + needed.treatment === 0)
    return `Each arm needs ${minimum} units.`
  const size = sizeInWords(metricOf(metric), matters)
  return `To find a difference of ${size} with probability ${POWER} takes about ${needed.control} units in the control and ${needed.treatment} in the treatment, looked at once, and more with looks all along. There are ${c.units} and ${t.units}.`
}
