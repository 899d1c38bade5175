import type { Millis } from '../mesh/clock.ts'
import { ALPHA, estimateOf } from './judge.ts'
import type { Listed, Look, Run } from './experiments.ts'
import { type MetricName, metricNames, metricOf } from './metrics.ts'
import type { UnitSample } from './samples.ts'
import { unnamedBy } from './assignment.ts'
import { armInWords, controlOf, type Experiment, minimumEffectOf, splitOf } from './schema.ts'
import {
  type ArmUnits,
  detectableMean,
  detectableProportion,
  unitsForMeans,
  unitsForProportions,
  type Wanted,
} from './statistics/power.ts'
import { clusteredDifferenceInterval, newcombeInterval } from './statistics/proportions.ts'
import { quantileDifferences, resamplesFor } from './statistics/quantile-bootstrap.ts'
import { createRandom } from './statistics/random.ts'
import { holm, pOf, sampleRatioSequence } from './statistics/significance.ts'
import { sizeInWords } from './statistics/sentences.ts'
import { type Interval, type UnitEstimate, welchInterval } from './statistics/unit-estimates.ts'
import type { Verdict } from './statistics/verdict.ts'
import { numbered } from '../units/numbered.ts'

/** A setting with different values in the arms, as written in a config (`2s`); undefined without a value. */
export interface SettingDifference {
  /** Name of the setting, such as `retry.maxRetries`. */
  readonly setting: string
  readonly byArm: Readonly<Record<string, string | undefined>>
}

export interface MetricReport {
  readonly name: MetricName
  readonly about: string
  readonly unit: 'points' | 'ms' | 'count'
  readonly better: 'higher' | 'lower'
  readonly decides: boolean
  /** The value of the metric in each arm; NaN without data. */
  readonly values: Readonly<Record<string, number>>
  /**
   * The difference of each treatment minus control, with a 95 % interval for a single look, and its p-value. Both ends
   * equal the estimate when no value varied: then there is no interval.
   */
  readonly differences: Readonly<
    Record<string, Interval & { readonly p: number | undefined; readonly adjustedP: number | undefined }>
  >
}

/**
 * All facts about an experiment, as plain data. Differences are treatment minus control, shares in [0, 1]. In JSON,
 * non-finite numbers are null and undefined values are missing.
 */
export interface Report {
  readonly name: string
  readonly hypothesis: string
  /** The deciding metric. */
  readonly metric: MetricName
  /** The smallest relevant difference of the metric, in its unit, ≥ 0. */
  readonly minimumEffect: number
  /** Units each arm needs before the verdict may end the experiment. */
  readonly minimumUnits: number
  /** The confidence of each treatment's sequence, in (0, 1); all sequences together have 95 %. */
  readonly confidence: number
  readonly state: 'running' | 'ended' | 'not_started'
  readonly control: string
  /** `share`: of the matching units. `units`: counted by the verdict. `reported`: `units` with a reported outcome. */
  readonly arms: readonly {
    readonly name: string
    readonly set: string
    readonly share: number
    readonly assigned: number
    readonly units: number
    readonly reported: number
  }[]
  readonly settings: readonly SettingDifference[]
  readonly verdict: Verdict | undefined
  readonly treatment: string | undefined
  /** The verdict on each treatment, against the control; empty before the experiment has run. */
  readonly verdicts: Readonly<Record<string, Verdict>>
  /** ISO 8601. */
  readonly startedAt: string | undefined
  readonly endedAt: string | undefined
  readonly endedBecause: string | undefined
  readonly ranMs: Millis | undefined
  readonly looks: readonly Look[]
  readonly metrics: readonly MetricReport[]
  /** p-value of the test for a sample-ratio mismatch; undefined when agents choose their arm. */
  readonly sampleRatioP: number | undefined
  /** Matching calls, by assignment. */
  readonly calls: {
    readonly inArms: number
    readonly fallback: number
    readonly notDrawn: number
    readonly excluded: number
    /** See `unnamedBy`: why calls are excluded. */
    readonly unnamed: string
    readonly dropped: number
  }
  /** Numbers of injected faults, by arm and fate. */
  readonly fates: Readonly<Record<string, Readonly<Record<string, number>>>>
  /** Sentences on resources shared by the arms, and how sharing may blur a difference. */
  readonly interference: readonly string[]
  readonly next: string
}

/** Returns the effective settings of a policy set, by policy; policies without settings are missing. */
type SettingsOf = (set: string) => Readonly<Record<string, unknown>>

/** Returns the settings of policy sets under the given policies; for undefined, under the policies in force. */
export type SettingsUnder = (policies: Run['policies'] | undefined) => SettingsOf

/** The input of a report, as plain data for another thread. */
export interface ReportFacts {
  readonly experiment: Experiment
  readonly run: RunFacts | undefined
  /** The effective settings, by policy set. */
  readonly settings: ReadonlyMap<string, ReturnType<SettingsOf>>
  /** On the monotonic clock. */
  readonly now: Millis
}

interface RunFacts extends Pick<Run, 'startedAtWall' | 'startedAt' | 'looks' | 'judgement' | 'end'> {
  /** Units with at least one ended call. */
  readonly units: readonly UnitSample[]
  readonly assigned: ReadonlyMap<string, number>
  readonly calls: Pick<Run['samples'], 'fallback' | 'dropped' | 'out'>
  readonly fates: Run['samples']['fates']
}

/** Returns the facts about an experiment now. A past run keeps its own settings, whatever the config says now. */
export function factsOf(
  { experiment: configured, run }: Listed,
  settings: SettingsUnder,
  now: Millis,
): ReportFacts {
  const experiment = run?.experiment ?? configured
  const settingsOf = settings(run?.policies)
  const bySet = new Map(Object.values(experiment.arms).map((set) => [set, settingsOf(set)]))
  if (run === undefined) return { experiment, run, settings: bySet, now }
  const { startedAtWall, startedAt, looks, judgement, end, samples } = run
  const { fates, fallback, dropped, out } = samples
  // A copy, because units of a current run change during the report.
  const units = samples.known().map((sample) => ({ ...sample, durations: [...sample.durations] }))
  const assigned = new Map(Object.keys(experiment.arms).map((arm) => [arm, samples.unitsOf(arm)]))
  const calls = { fallback, dropped, out }
  return {
    experiment,
    run: { startedAtWall, startedAt, looks, judgement, end, units, assigned, calls, fates },
    settings: bySet,
    now,
  }
}

/** Returns a report. Takes up to two seconds of CPU with tens of thousands of units. */
export function reportOn({ experiment, run, settings, now }: ReportFacts): Report {
  const settingsOf: SettingsOf = (set) => settings.get(set) ?? {}
  const control = controlOf(experiment)
  const treatments = Object.keys(experiment.arms).filter((arm) => arm !== control)
  const split = splitOf(experiment)
  const units = run?.units ?? []
  const byArm = new Map(Object.keys(experiment.arms).map((arm) => [arm, [] as UnitSample[]]))
  for (const unit of units) if (unit.isJudged) byArm.get(unit.arm)?.push(unit)
  const counts = [...split.keys()].map((arm) => run?.assigned.get(arm) ?? 0)
  const verdict = run?.judgement.verdict
  const decided = run?.judgement.treatment ?? treatments[0]!
  return {
    name: experiment.name,
    hypothesis: hypothesisOf(experiment, control, treatments),
    metric: experiment.metric,
    minimumEffect: minimumEffectOf(experiment),
    minimumUnits: experiment.minimumUnits,
    confidence: 1 - ALPHA / treatments.length,
    state: run === undefined ? 'not_started' : run.end === undefined ? 'running' : 'ended',
    control,
    arms: [...split].map(([name, share]) => ({
      name,
      set: experiment.arms[name]!,
      share: share * experiment.share,
      assigned: run?.assigned.get(name) ?? 0,
      units: byArm.get(name)!.length,
      reported: byArm.get(name)!.filter(({ outcome }) => outcome !== undefined).length,
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
      inArms: units.reduce((sum, { calls }) => sum + calls, 0),
      fallback: run?.calls.fallback ?? 0,
      notDrawn: run?.calls.out.not_drawn ?? 0,
      excluded: run?.calls.out.excluded ?? 0,
      unnamed: unnamedBy(experiment),
      dropped: run?.calls.dropped ?? 0,
    },
    fates: Object.fromEntries(
      [...(run?.fates ?? [])].map(([arm, fates]) => [arm, Object.fromEntries(fates)]),
    ),
    interference: interferenceIn(experiment, settingsOf),
    next: nextOf(
      experiment,
      verdict,
      { control: split.get(control)!, treatment: split.get(decided)! },
      decided,
      byArm.get(control)!,
      byArm.get(decided)!,
    ),
  }
}

function hypothesisOf(experiment: Experiment, control: string, treatments: readonly string[]): string {
  const { metric, arms } = experiment
  const { about } = metricOf(metric)
  const sets = treatments.map((arm) => `"${arms[arm]}"`).join(' or ')
  const size = sizeInWords(metricOf(metric), minimumEffectOf(experiment))
  return `Does the policy set ${sets} change ${metric} by ${size} or more, against "${arms[control]}"? Deciding metric: ${about[0]!.toLowerCase()}${about.slice(1)}`
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
      const intervalAt = (alpha: number) => intervalOf(name, c, t, alpha)
      return [arm, { ...intervalAt(ALPHA), p: pOf(intervalAt) }] as const
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

function intervalOf(
  name: MetricName,
  control: UnitEstimate,
  treatment: UnitEstimate,
  alpha: number,
): Interval {
  const { estimator, unit } = metricOf(name)
  if (estimator.kind === 'proportion') return newcombeInterval(countOf(control), countOf(treatment), alpha)
  return unit === 'points'
    ? clusteredDifferenceInterval(control, treatment, alpha)
    : welchInterval(control, treatment, alpha)
}

const countOf = ({ units, value }: { readonly units: number; readonly value: number }) => ({
  units,
  successes: units === 0 ? 0 : Math.round(value * units),
})

type Compared = Pick<MetricReport, 'values'> & {
  readonly differences: readonly (readonly [string, Interval & { readonly p: number | undefined }])[]
}

/** Returns the values and intervals of all quantiles, from the same resamples. Quantiles have no p-values. */
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

function settingDifferences({ arms }: Experiment, settingsOf: SettingsOf): SettingDifference[] {
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
    const text = typeof value === 'string' ? value : (JSON.stringify(value) as string | undefined)
    if (text !== undefined) yield [path, text]
    return
  }
  for (const [key, inner] of Object.entries(value))
    yield* leavesOf(inner, path === '' ? key : `${path}.${key}`)
}

function interferenceIn(experiment: Experiment, settingsOf: SettingsOf): string[] {
  const { arms, assignBy, fallback } = experiment
  const quotas = Object.values(arms).some((set) => {
    const { rateLimit } = settingsOf(set) as { rateLimit?: { quota?: unknown } | false }
    return rateLimit !== undefined && rateLimit !== false && rateLimit.quota !== undefined
  })
  return [
    'Servers serve all arms: a server slowed down by the calls of an arm is slow for the others too.',
    'Slots, rates and concurrency limits of servers are divided by the shares of the arms: each arm has less than it would have alone.',
    'Each arm has its own breakers, retry budgets, latency estimates and stored answers; connections and sessions with servers, catalogs and learned schemas are shared.',
    assignBy === 'agent'
      ? 'Each arm has its own idempotency keys: a write made in both arms runs twice.'
      : 'Idempotency keys are shared: a write that ran in one arm does not run again in another.',
    ...(quotas ? ['Quotas of servers are shared: all arms use up the same quota.'] : []),
    ...(assignBy === 'agent' || fallback === 'exclude'
      ? []
      : [
          `Calls without the unit of assignment are assigned by their ${fallback}; the report counts these calls.`,
        ]),
  ]
}

/** Power to find the smallest relevant difference at a single look. */
const POWER = 0.8

function nextOf(
  experiment: Experiment,
  verdict: Verdict | undefined,
  shares: { readonly control: number; readonly treatment: number },
  decided: string,
  control: readonly UnitSample[],
  treatment: readonly UnitSample[],
): string {
  if (verdict === undefined) return 'The experiment has not run: start it.'
  const { metric, minimumUnits } = experiment
  const minimumEffect = minimumEffectOf(experiment)
  const { estimator } = metricOf(metric)
  if (verdict.result === 'better' || verdict.result === 'worse')
    return 'The sequence behind the verdict is valid at all looks together: more units would hardly change the verdict.'
  if (verdict.result === 'invalid' && verdict.ends)
    return `More units alone may not help: check that the arms get their planned shares, that no unit outweighs the others, and that each arm gets ${minimumUnits} units.`
  if (estimator.kind === 'quantile')
    return 'Quantiles are judged only at the end: more units make their interval narrower.'
  const [c, t] = [estimateOf(metric, control), estimateOf(metric, treatment)]
  const inWords = (size: number) => sizeInWords(metricOf(metric), size)
  if (c.units < 2 || t.units < 2) return `Each arm needs ${numbered(minimumUnits, 'unit')}.`
  const names = {
    control: armInWords(experiment, controlOf(experiment)),
    treatment: armInWords(experiment, decided),
  }
  const wanted = {
    alpha: ALPHA / (Object.keys(experiment.arms).length - 1),
    power: POWER,
    treatmentShare: shares.treatment / (shares.control + shares.treatment),
  }
  const found = detectableIn(metric, c, t, wanted)
  const there = `The present ${c.units} and ${t.units} units find ${found === undefined ? 'no difference' : `a difference of ${inWords(found)}`} with the same probability.`
  const needed = minimumEffect === 0 ? undefined : neededIn(metric, c, t, minimumEffect, wanted)
  if (needed === undefined) return `Each arm needs ${numbered(minimumUnits, 'unit')}.`
  return `Finding a difference of ${inWords(minimumEffect)} with probability ${POWER} takes about ${needed.control} units in ${names.control} and ${needed.treatment} in ${names.treatment} at a single look, and about twice as many with continuous looks. ${there}`
}

/** Returns the units needed to find a difference of this size; undefined without a known variance. */
function neededIn(
  metric: MetricName,
  control: UnitEstimate,
  treatment: UnitEstimate,
  size: number,
  wanted: Wanted,
): ArmUnits | undefined {
  const isShare = metricOf(metric).estimator.kind === 'proportion'
  // Assumes a change towards 0.5, where shares vary most.
  const other = control.value + (control.value > 0.5 ? -size : size)
  const needed = isShare
    ? unitsForProportions(control.value, other, wanted)
    : unitsForMeans(size, { control: control.variance, treatment: treatment.variance }, wanted)
  return Number.isFinite(needed.control) && needed.control > 0 ? needed : undefined
}

/** Returns the smallest difference from the control the present units can show; undefined for none. */
function detectableIn(
  metric: MetricName,
  control: UnitEstimate,
  treatment: UnitEstimate,
  wanted: Wanted,
): number | undefined {
  const units = { control: control.units, treatment: treatment.units }
  if (metricOf(metric).estimator.kind !== 'proportion') {
    const size = detectableMean({ control: control.variance, treatment: treatment.variance }, units, wanted)
    return size > 0 ? size : undefined
  }
  const size = detectableProportion(control.value, units, control.value > 0.5 ? 'down' : 'up', wanted)
  return size === undefined ? undefined : Math.abs(size)
}
