import { GROWTH, LEAST_MS } from '../experiments/guarded/meter.ts'
import { holm } from '../experiments/statistics/significance.ts'
import {
  ALPHA,
  type Change,
  changeIn,
  FEWEST_ON_A_SIDE,
  FEWEST_RUNS,
  type Observation,
  visibleShift,
} from './change.ts'
import type { RunField } from './stored-run.ts'
import type { RunSummary } from './summary.ts'

/** Trends of the values that comparable runs measured. `change.ts` holds the statistics. */

/**
 * Measured values of a run, the lower the better. `recovery`: time to recover, in milliseconds. `p95`: duration that
 * 95 % of the treatment's calls in stages do not exceed, in milliseconds. `error_ratio`: share of the treatment's calls
 * in stages that failed, from 0 to 1.
 */
export const trendMetrics = ['recovery', 'p95', 'error_ratio'] as const
export type TrendMetric = (typeof trendMetrics)[number]

/** The fields of a run that trends need. */
export const trendFields = [
  ...([
    'id',
    'name',
    'kind',
    'shape',
    'at',
    'hashes',
    'host',
    'era',
    'transport',
    'replicas',
    'load',
  ] as const),
  ...(['arms', 'faults', 'windows', 'recoveries', 'claims', 'rto', 'verdict'] as const),
] as const satisfies readonly RunField[]

export type TrendRun = Pick<RunSummary, (typeof trendFields)[number]>

/** The fields in which comparable runs agree. */
const keyFields = {
  kind: (run) => run.kind,
  shape: (run) => run.shape,
  policies: (run) => run.hashes.policies,
  load: (run) => run.hashes.load,
  'load.model': (run) => run.load.model,
  'host.class': (run) => run.host.class,
  era: (run) => run.era,
  transport: (run) => run.transport,
  replicas: (run) => run.replicas,
} as const satisfies Readonly<Record<string, (run: TrendRun) => string | number>>

export type KeyField = keyof typeof keyFields
const fields = Object.keys(keyFields) as KeyField[]

export type SeriesKey = Readonly<Partial<Record<KeyField, string | number>>>

export interface TrendOptions {
  /** `policies`: runs with other policies are comparable too, so a change may be a change of policies. */
  readonly across?: 'policies'
}

/** Runs with equal keys, in order of their time. With `across`, the key lacks this field. */
export interface Series {
  readonly key: SeriesKey
  readonly across: 'policies' | undefined
  readonly runs: readonly TrendRun[]
}

/** Groups runs into series, in order of their first runs. */
export function comparable(summaries: readonly TrendRun[], { across }: TrendOptions = {}): Series[] {
  const series = new Map<string, { readonly key: SeriesKey; readonly runs: TrendRun[] }>()
  for (const run of inOrder(summaries)) {
    const key = Object.fromEntries(
      fields.filter((field) => field !== across).map((field) => [field, keyFields[field](run)]),
    ) as SeriesKey
    const text = JSON.stringify(key)
    const found = series.get(text)
    if (found === undefined) series.set(text, { key, runs: [run] })
    else found.runs.push(run)
  }
  return [...series.values()].map(({ key, runs }) => ({ key, across, runs }))
}

const inOrder = (summaries: readonly TrendRun[]): TrendRun[] =>
  [...summaries].sort(
    (one, other) => one.at - other.at || (one.id < other.id ? -1 : one.id > other.id ? 1 : 0),
  )

/** Values in the unit of the metric. A missing end: at most runs without a recovery lie there. */
export interface Noise {
  readonly low: number | undefined
  readonly high: number | undefined
  /** `A/A`: runs without faults whose arms have the same policy set. */
  readonly from: 'A/A runs' | 'runs before the change'
  readonly runs: number
}

/** A split of a series, in values of the metric. A median is undefined if half of the runs or more did not recover. */
export interface Split {
  /** Number of measured runs before the split. */
  readonly index: number
  /** Identifier of the first run after the split. */
  readonly run: string
  readonly before: number | undefined
  readonly after: number | undefined
}

/** A step of half of the runs that the series would have shown with a power of 90 %. */
export interface Visible {
  /** Ratio of the step, above 1; undefined if the median is 0. */
  readonly factor: number | undefined
  /** Difference of the step, in the unit of the metric. */
  readonly difference: number
}

interface Of {
  readonly metric: TrendMetric
  /** Runs with a measured value. */
  readonly n: number
  /** The runs differ in this field, perhaps. */
  readonly across: 'policies' | undefined
}

interface Looked extends Of {
  /** Positive: later values are higher. The limit is for the absolute value. See `Change`. */
  readonly statistic: number
  readonly limit: number
  /** Valid for all looks together, if runs are independent. */
  readonly p: number
  /** Lag-1 autocorrelation of the runs around the change, from −1 to 1. */
  readonly autocorrelation: number
  /** The split with the largest statistic, also where no change was found. */
  readonly split: Split
  readonly noise: Noise | undefined
}

export interface ChangeFound extends Looked {
  readonly answer: 'degrading' | 'improving'
  readonly shape: Change['shape']
  /**
   * The promise over the runs after the split: for `recovery` the promised time, else the claims of the runs.
   * `kept`: the change is a drift within the promise and no failure. Undefined: the runs promised nothing.
   */
  readonly promise: 'kept' | 'broken' | undefined
}

export type Trend =
  | ChangeFound
  /** `wouldHaveSeen` is undefined below 18 runs: only a step that all values show could be found. */
  | (Looked & { readonly answer: 'no change found'; readonly wouldHaveSeen: Visible | undefined })
  /** A change, or runs that depend on the runs before: both explain the values. */
  | (Looked & { readonly answer: 'not independent' })
  /** Fewer than `FEWEST_RUNS` runs have a value. */
  | (Of & { readonly answer: 'not enough data' })
  /** The runs are no series: they differ in these fields of the key. */
  | (Of & { readonly answer: 'not comparable'; readonly differ: readonly KeyField[] })

/** A scale on which noise is about normal: logarithms of times, and the arcsine for shares (M. Bartlett, 1947). */
interface Scale {
  readonly to: (value: number) => number
  readonly from: (scaled: number) => number | undefined
}

/** Times below a tenth of a millisecond count as a tenth. */
const logarithm: Scale = { to: (ms) => Math.log(Math.max(LEAST_MS, ms)), from: Math.exp }
const arcsine: Scale = {
  to: (share) => Math.asin(Math.sqrt(share)),
  from: (angle) => (angle <= Math.PI / 2 ? Math.sin(angle) ** 2 : undefined),
}

const metrics: Readonly<
  Record<TrendMetric, { readonly scale: Scale; readonly of: (run: TrendRun) => Observation | undefined }>
> = {
  recovery: { scale: logarithm, of: recoveryOf },
  p95: { scale: logarithm, of: p95Of },
  error_ratio: { scale: arcsine, of: errorRatioOf },
}

/** Returns the value that a run measured; undefined without one. */
export const measuredIn = (run: TrendRun, metric: TrendMetric): Observation | undefined =>
  metrics[metric].of(run)

/**
 * Without a measured recovery, the truth is above the longest time watched in vain, or above the promised time. A run
 * without both had nothing to recover from.
 */
function recoveryOf({ rto, recoveries }: TrendRun): Observation | undefined {
  if (rto.measuredMs !== null) return { value: rto.measuredMs, isCensored: false }
  const watched = recoveries.filter(({ censored }) => censored).map(({ ms }) => ms)
  if (watched.length > 0) return { value: Math.max(...watched), isCensored: true }
  return rto.promisedMs === null ? undefined : { value: rto.promisedMs, isCensored: true }
}

const treatedStages = ({ windows }: TrendRun) =>
  windows.filter(({ arm, stage }) => arm === 'treatment' && stage !== null)

function p95Of(run: TrendRun): Observation | undefined {
  const cell = p95CellOf(run)
  return cell === undefined ? undefined : { value: LEAST_MS * GROWTH ** (cell - 0.5), isCensored: false }
}

/** Returns the cell of the p95; undefined without durations. */
function p95CellOf(run: TrendRun): number | undefined {
  const counts = new Map<number, number>()
  for (const { cells } of treatedStages(run)) {
    for (const [cell, count] of cells) counts.set(cell, (counts.get(cell) ?? 0) + count)
  }
  let left = Math.ceil(0.95 * [...counts.values()].reduce((sum, count) => sum + count, 0) - 1e-9)
  if (left <= 0) return undefined
  const sorted = [...counts].sort(([one], [other]) => one - other)
  return sorted.find(([, count]) => (left -= count) <= 0)![0]
}

/**
 * Returns a run with the same trend and less memory: the stages of the treatment become a single window, with a single
 * duration at the p95.
 */
export function compacted<Run extends TrendRun>(run: Run): Run {
  const windows = treatedStages(run)
  const [first] = windows
  if (first === undefined) return { ...run, windows: [] }
  const cell = p95CellOf(run)
  const sum = (of: (window: (typeof windows)[number]) => number) =>
    windows.reduce((total, window) => total + of(window), 0)
  const merged = { ...first, calls: sum(({ calls }) => calls), failed: sum(({ failed }) => failed) }
  return { ...run, windows: [{ ...merged, cells: cell === undefined ? [] : [[cell, 1]] }] }
}

function errorRatioOf(run: TrendRun): Observation | undefined {
  const windows = treatedStages(run)
  const calls = windows.reduce((sum, window) => sum + window.calls, 0)
  if (calls === 0) return undefined
  return { value: windows.reduce((sum, window) => sum + window.failed, 0) / calls, isCensored: false }
}

interface Measured {
  readonly run: TrendRun
  readonly value: Observation
}

/** A run without evidence measured no effect of the faults. Runs without faults still show the noise. */
const isComparable = (run: TrendRun): boolean => run.verdict !== 'no evidence' || isSameInBothArms(run)

/**
 * Returns the trend of a metric over runs of one series, in any order. Runs without evidence do not count. The answer is valid however often somebody looks
 * as runs are added: over 60 independent runs without a change, at most 5 % of all series ever answer `degrading` or
 * `improving`; with a lag-1 autocorrelation of 0.3, at most 10 %.
 */
export function trendOf(
  summaries: readonly TrendRun[],
  metric: TrendMetric,
  { across }: TrendOptions = {},
): Trend {
  const measured = inOrder(summaries.filter(isComparable)).flatMap((run): Measured[] => {
    const value = measuredIn(run, metric)
    return value === undefined ? [] : [{ run, value }]
  })
  const about: Of = { metric, n: measured.length, across }
  const differ = fields.filter(
    (field) => field !== across && new Set(summaries.map((run) => keyFields[field](run))).size > 1,
  )
  if (differ.length > 0) return { ...about, answer: 'not comparable', differ }
  if (measured.length < FEWEST_RUNS) return { ...about, answer: 'not enough data' }
  const { scale } = metrics[metric]
  const values = measured.map(({ value }) => value)
  const { statistic, limit, p, autocorrelation, cause, shape, split: index } = changeIn(values, scale.to)
  const split: Split = {
    index,
    run: measured[index]!.run.id,
    before: quantileOf(values.slice(0, index), 0.5),
    after: quantileOf(values.slice(index), 0.5),
  }
  const noise = noiseOf(measured, cause === 'change' ? index : undefined)
  const looked: Looked = { ...about, statistic, limit, p, autocorrelation, split, noise }
  if (cause === 'none')
    return { ...looked, answer: 'no change found', wouldHaveSeen: visibleIn(values, scale) }
  if (cause === 'dependence') return { ...looked, answer: 'not independent' }
  const promise = promiseOf(measured.slice(index), metric)
  return { ...looked, answer: statistic > 0 ? 'degrading' : 'improving', shape, promise }
}

/** Returns the smallest value that a share of the values does not exceed; undefined if this value is censored. */
function quantileOf(values: readonly Observation[], share: number): number | undefined {
  const sorted = values
    .map(({ value, isCensored }) => (isCensored ? Infinity : value))
    .sort((one, other) => (one < other ? -1 : one > other ? 1 : 0))
  const rank = share * sorted.length
  const lower = sorted[Math.max(0, Math.ceil(rank - 1e-9) - 1)]!
  // The median of an even number of values is the mean of the two middle values.
  const upper = share === 0.5 && sorted.length % 2 === 0 ? sorted[sorted.length / 2]! : lower
  return upper === Infinity ? undefined : (lower + upper) / 2
}

function noiseOf(measured: readonly Measured[], split: number | undefined): Noise | undefined {
  const same = measured.filter(({ run }) => isSameInBothArms(run))
  const isEnough = same.length >= FEWEST_ON_A_SIDE
  if (!isEnough && split === undefined) return undefined
  const values = (isEnough ? same : measured.slice(0, split)).map(({ value }) => value)
  return {
    low: quantileOf(values, 0.05),
    high: quantileOf(values, 0.95),
    from: isEnough ? 'A/A runs' : 'runs before the change',
    runs: values.length,
  }
}

const isSameInBothArms = ({ kind, arms, faults }: TrendRun): boolean =>
  (kind === 'comparison' || kind === 'paired') &&
  faults.length === 0 &&
  arms.length > 1 &&
  arms.every(({ set }) => set === arms[0]!.set)

function promiseOf(after: readonly Measured[], metric: TrendMetric): ChangeFound['promise'] {
  if (metric === 'recovery') {
    const promised = after.filter(({ run }) => run.rto.promisedMs !== null)
    if (promised.length === 0) return undefined
    const isKept = promised.every(({ run, value }) => !value.isCensored && value.value <= run.rto.promisedMs!)
    return isKept ? 'kept' : 'broken'
  }
  const claims = after.flatMap(({ run }) => run.claims).filter(({ status }) => status !== 'not_measured')
  if (claims.length === 0) return undefined
  return claims.every(({ status }) => status !== 'failed') ? 'kept' : 'broken'
}

function visibleIn(values: readonly Observation[], { to, from }: Scale): Visible | undefined {
  const shift = visibleShift(values.length)
  const median = quantileOf(values, 0.5)
  if (shift === undefined || median === undefined) return undefined
  const scaled = values.map(({ value }) => to(value))
  const mean = scaled.reduce((sum, value) => sum + value, 0) / scaled.length
  const squares = scaled.reduce((sum, value) => sum + (value - mean) ** 2, 0)
  const raised = from(to(median) + shift * Math.sqrt(squares / (scaled.length - 1)))
  if (raised === undefined) return undefined
  return { factor: median > 0 ? raised / median : undefined, difference: raised - median }
}

export interface Adjusted {
  /** p-value after Holm's adjustment for all trends; 1 for `not independent`, undefined without enough runs. */
  readonly adjustedP: number | undefined
  /** The trend is `degrading` or `improving`, and still is among all the trends looked at. */
  readonly holds: boolean
}

/**
 * Returns for each trend whether the trend holds among all of these trends, by `holm`: over all trends of independent
 * runs together, a false alarm has a probability of 5 % at most. Trends without enough runs do not count.
 */
export function amongAll(trends: readonly Trend[]): Adjusted[] {
  const ps = trends.map((trend) => {
    if (!('p' in trend)) return undefined
    return trend.answer === 'not independent' ? 1 : trend.p
  })
  const adjusted = holm(ps.filter((p) => p !== undefined))
  let next = 0
  return trends.map(({ answer }, at) => {
    if (ps[at] === undefined) return { adjustedP: undefined, holds: false }
    const adjustedP = adjusted[next++]!
    return { adjustedP, holds: (answer === 'degrading' || answer === 'improving') && adjustedP <= ALPHA }
  })
}

export interface Regression extends Adjusted {
  readonly key: SeriesKey
  /** Name and identifier of the last run of the series. */
  readonly name: string
  readonly run: string
  readonly trend: Trend
}

/** The order of answers in a list: the reader must act on the first ones. */
const order: Readonly<Record<Trend['answer'], number>> = {
  degrading: 0,
  'not independent': 2,
  improving: 3,
  'no change found': 4,
  'not enough data': 5,
  'not comparable': 6,
}

/**
 * Returns the trends of all series and metrics, adjusted for their number. Degrading trends that hold come first, then
 * other degrading trends; within a rank, the smallest p-value comes first.
 */
export function regressions(summaries: readonly TrendRun[], options: TrendOptions = {}): Regression[] {
  const found = comparable(summaries, options).flatMap(({ key, runs }) => {
    const { name, id } = runs.at(-1)!
    return trendMetrics.map((metric) => ({ key, name, run: id, trend: trendOf(runs, metric, options) }))
  })
  const adjusted = amongAll(found.map(({ trend }) => trend))
  const rankOf = ({ trend, holds }: Regression) =>
    order[trend.answer] + (trend.answer === 'degrading' && !holds ? 1 : 0)
  return found
    .map((one, at): Regression => ({ ...one, ...adjusted[at]! }))
    .sort((one, other) => rankOf(one) - rankOf(other) || (one.adjustedP ?? 1) - (other.adjustedP ?? 1))
}
