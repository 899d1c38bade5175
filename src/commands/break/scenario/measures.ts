import type { Range } from '../../../claims/judge.ts'
import type { Subject } from '../../../claims/subjects.ts'
import { quantileInterval } from '../../../evidence/verdict.ts'
import { cellOf } from '../../../experiments/guarded/meter.ts'
import { wilsonInterval } from '../../../experiments/statistics/proportions.ts'
import type { Millis } from '../../../mesh/clock.ts'
import {
  callsDuring,
  type Counted,
  type Evidence,
  type Fates,
  FEWEST_CALLS,
  goodOf,
  type OwnCall,
  quantile,
} from './evidence.ts'

/**
 * The verdict on an assertion. `undecided`: the run measured too little to decide. `skipped`: the assertion has no
 * subject, such as other servers.
 */
export interface Judged {
  readonly verdict: 'pass' | 'fail' | 'undecided' | 'skipped'
  /** The measured value, or the reason why no value was measured. */
  readonly measured: string
}

const ALPHA = 0.05

/** A cell beyond all durations. */
const LAST_CELL = 10_000

export const undecided = (why: string): Judged => ({ verdict: 'undecided', measured: `not decided: ${why}` })

const NO_TRAFFIC = undecided('the run made no calls of its own')
const TOO_FEW = undecided(`fewer than ${FEWEST_CALLS} of these calls ended`)
const UNREAD = undecided("the gateway's metrics could not be read, or lack calls")

/** The possible range of a number, because unfinished calls may still end well or badly. */
interface OpenRange extends Range {
  readonly open: number
}

export type Part = Parameters<typeof callsDuring>[1]

/**
 * Returns a measured number of a run, or a verdict when the run did not measure the number. Unfinished calls count in
 * quantiles once they have taken longer than `limit`, in milliseconds.
 */
export type Measure = (evidence: Evidence, limit: Millis, part?: Part) => number | OpenRange | Judged

/** Returns a function that measures the run's own calls; its verdict is `undecided` when the run made none. */
export const withCalls =
  <Found>(of: (evidence: Evidence) => Found) =>
  (evidence: Evidence): Found | Judged =>
    evidence.calls === undefined ? NO_TRAFFIC : of(evidence)

const ofCalls =
  (of: (calls: readonly OwnCall[], now: Millis, limit: Millis) => number | OpenRange | undefined): Measure =>
  (evidence, limit, part) =>
    withCalls(({ calls, clearedAt }) =>
      part?.isHit === false && !calls!.some(({ isHit }) => !isHit)
        ? withoutOthers(evidence)
        : (of(callsDuring(evidence, part), clearedAt, limit) ?? TOO_FEW),
    )(evidence)

/**
 * Returns the verdict when no other server was called: `skipped` if there is none, else `undecided`, because it may
 * have suffered.
 */
function withoutOthers({ others }: Evidence): Judged {
  if (others.length === 0) return { verdict: 'skipped', measured: 'there is no other server' }
  const more = others.length > 5 ? ', …' : ''
  return undecided(`none of ${others.slice(0, 5).join(', ')}${more} was called`)
}

const durationAt = (share: number) => ofCalls((calls, now, limit) => quantile(share, calls, limit, now))

/** Returns a measure for a share of calls: a range, because unfinished calls may still end well or badly. */
const shareOfCalls = (of: (seen: NonNullable<ReturnType<typeof goodOf>>) => number) =>
  ofCalls((calls, now) => {
    const seen = goodOf(calls, now)
    if (seen === undefined) return undefined
    const { open, all } = seen
    return { least: of(seen) / all, most: (of(seen) + open) / all, open }
  })

/** Returns a measure for a number counted by the gateway; `undecided` when the metrics could not be read. */
export const counted =
  (of: (counted: Counted) => number): Measure =>
  ({ counted: seen }) =>
    seen === undefined ? UNREAD : of(seen)

const fate =
  (name: Exclude<keyof Fates, 'open'>): Measure =>
  ({ fates: { [name]: least, open } }) => ({ least, most: least + open, open })

export const measures = {
  p50: durationAt(0.5),
  p90: durationAt(0.9),
  p95: durationAt(0.95),
  p99: durationAt(0.99),
  tcsr: shareOfCalls(({ good }) => good),
  error_ratio: shareOfCalls(({ good, open, all }) => all - open - good),
  masked: fate('masked'),
  delayed: fate('delayed'),
  surfaced: fate('surfaced'),
  escaped: fate('escaped'),
  not_reached: fate('notReached'),
  retries: counted(({ retries }) => retries),
  attempts_per_call: counted(({ attempts, calls }) => attempts / Math.max(1, calls)),
} as const satisfies Partial<Record<Subject, Measure>>

/** A measured value of calls with its 95 % interval, over `n` calls. The interval covers every end of open calls. */
export interface Estimate {
  readonly value: number
  readonly low: number
  readonly high: number
  readonly n: number
}

/** Estimates a measure from calls as a sample; undefined without calls. */
export type Estimator = (evidence: Evidence, part?: Part) => Estimate | undefined

const shareEstimator =
  (isGood: boolean): Estimator =>
  (evidence, part) => {
    const seen = goodOf(callsDuring(evidence, part), evidence.clearedAt)
    if (seen === undefined) return undefined
    const { open, all } = seen
    const counted = isGood ? seen.good : all - open - seen.good
    return {
      value: counted / all,
      low: wilsonInterval({ successes: counted, units: all }, ALPHA).low,
      high: wilsonInterval({ successes: counted + open, units: all }, ALPHA).high,
      n: all,
    }
  }

/** Open calls count as if they never ended. */
export function quantileEstimate(calls: readonly OwnCall[], share: number): Estimate | undefined {
  const cells = cellsOf(calls)
  const open = calls.filter(({ endedAt }) => endedAt === undefined).length
  const found = quantileInterval(open === 0 ? cells : [...cells, [LAST_CELL, open]], share)
  return found && { value: found.estimate, low: found.low, high: found.high, n: calls.length }
}

/** Returns the durations of ended calls as a histogram. */
export function cellsOf(calls: readonly OwnCall[]): [cell: number, count: number][] {
  const cells = new Map<number, number>()
  for (const { startedAt, endedAt } of calls) {
    if (endedAt === undefined) continue
    const cell = cellOf(endedAt - startedAt)
    cells.set(cell, (cells.get(cell) ?? 0) + 1)
  }
  return [...cells].sort(([a], [b]) => a - b)
}

const quantileEstimator =
  (share: number): Estimator =>
  (evidence, part) =>
    quantileEstimate(callsDuring(evidence, part), share)

/** The measures that estimate a value from a sample of calls. All other measures count facts. */
export const estimators: ReadonlyMap<Measure, Estimator> = new Map<Measure, Estimator>([
  [measures.p50, quantileEstimator(0.5)],
  [measures.p90, quantileEstimator(0.9)],
  [measures.p95, quantileEstimator(0.95)],
  [measures.p99, quantileEstimator(0.99)],
  [measures.tcsr, shareEstimator(true)],
  [measures.error_ratio, shareEstimator(false)],
])

export const measurable = Object.keys(measures) as (keyof typeof measures)[]
