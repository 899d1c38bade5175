import { wilsonInterval } from '../experiments/statistics/proportions.ts'
import { createRandom } from '../experiments/statistics/random.ts'
import { resamplesFor } from '../experiments/statistics/quantile-bootstrap.ts'
import type { Interval } from '../experiments/statistics/unit-estimates.ts'
import type { RecordedCall } from '../telemetry/recording/format.ts'
import type { Play } from './replay.ts'

/**
 * Figures of plays of a recording, with intervals by a bootstrap over tasks. Each resample draws, with replacement, as
 * many tasks as the recording has, each with all calls. Among several plays under the same policies, a resample draws
 * one play. Tasks are drawn in blocks of consecutive tasks (circular block bootstrap, D. Politis and J. Romano, 1992).
 * Tasks near in time share the state of their servers, so a bad spell counts as one event and not once per task. In
 * each resample all columns have the same tasks, and all replayed columns have plays of the same seed, so differences
 * are paired.
 *
 * If no call or every call went wrong, all resamples are equal, but this proves nothing about other runs. A share then
 * gets the interval of a proportion of tasks (`whereAllAgree`).
 */

interface FigureAbout {
  readonly name: string
  /** `points`: a share, in [0, 1]; `ms`: a duration in milliseconds; `count`: a mean, 0 or more. */
  readonly unit: 'points' | 'ms' | 'count'
}

export const figures = {
  tcsr: { name: 'calls that went well (TCSR)', unit: 'points' },
  eta: { name: 'the same without rejected calls (ETA)', unit: 'points' },
  blastRadius: { name: 'tasks with a failed call', unit: 'points' },
  p50: { name: 'p50 of calls', unit: 'ms' },
  p95: { name: 'p95 of calls', unit: 'ms' },
  p99: { name: 'p99 of calls', unit: 'ms' },
  attempts: { name: 'attempts per call', unit: 'count' },
  retries: { name: 'retries per call', unit: 'count' },
} as const satisfies Readonly<Record<string, FigureAbout>>

export type Figure = keyof typeof figures

const names = Object.keys(figures) as Figure[]

/** The probability that an interval misses the value: 1 − its confidence. */
const ALPHA = 0.05

/**
 * Number of blocks: enough to show how blocks differ. A spell longer than a block counts as several events, so
 * intervals are too narrow when spells last longer than a 25th of the recording.
 */
const BLOCKS = 25

export interface Column {
  readonly name: string
  /** Plays under the same policies; at least one. Plays with the same seed have the same index in all columns. */
  readonly plays: readonly Play[]
}

/** A column of a report. */
export interface Told {
  readonly name: string
  readonly figures: Readonly<Record<Figure, Interval>>
  /** Rejections of calls and tries by reason, as a share of the calls. */
  readonly rejections: Readonly<Record<string, Interval>>
}

export interface Comparison {
  /** The recorded figures, with 95 % confidence intervals for the long-run value of such traffic. */
  readonly recorded: Told
  /**
   * The replayed figures, with 95 % prediction intervals for another live run of as many tasks, including its noise.
   */
  readonly replayed: readonly Told[]
  /**
   * The last column minus the first replayed column, with the same kind of intervals as `recorded`. Undefined with a
   * single column.
   */
  readonly difference: Told | undefined
}

export function compareColumns(
  calls: readonly RecordedCall[],
  recorded: Play,
  replayed: readonly Column[],
): Comparison {
  const units = unitsOf(calls)
  const columns = [{ name: 'recorded', plays: [recorded] }, ...replayed]
  const sums = columns.map(({ plays }) => plays.map((play) => new PlaySums(units, play)))
  const reasons = [...new Set(sums.flat().flatMap(({ rejections }) => [...rejections.keys()]))].sort()
  const all = new Int32Array(units.count).fill(1)
  const estimates = sums.map((plays) => meanOf(plays.map((play) => play.values(all, reasons))))
  const resampled = resample(sums, units.count, reasons)
  const told = (name: string, intervals: readonly Interval[]): Told => ({
    name,
    figures: Object.fromEntries(names.map((figure, at) => [figure, intervals[at]!])) as Told['figures'],
    rejections: Object.fromEntries(reasons.map((reason, at) => [reason, intervals[names.length + at]!])),
  })
  const [own, ...others] = columns.map(({ name }, column) => {
    const intervals = estimates[column]!.map((estimate, at) => {
      const values = resampled.map((columns) => columns[column]![at]!)
      const count = sums[column]![0]!.unitsOf(names[at])
      if (isShare(names[at]) && allAgree(values)) return whereAllAgree(estimate, count, column > 0)
      if (column === 0) return percentiles(estimate, values)
      return predicted(estimate, values, mostOf(names[at]))
    })
    return told(name, intervals)
  })
  const last = columns.length - 1
  const differences = estimates[last]!.map((estimate, at) => {
    const difference = estimate - estimates[1]![at]!
    const values = resampled.map((values) => values[last]![at]! - values[1]![at]!)
    const isOfAll = [1, last].every((column) => estimates[column]![at] === 0 || estimates[column]![at] === 1)
    if (!isShare(names[at]) || !isOfAll || !allAgree(values)) return percentiles(difference, values)
    // No task of this recording differs, but tasks of other recordings may differ.
    const { high } = whereAllAgree(0, sums[last]![0]!.unitsOf(names[at]), false)
    return {
      estimate: difference,
      low: Math.max(-1, difference - high),
      high: Math.min(1, difference + high),
    }
  })
  const difference = last > 1 ? told('difference', differences) : undefined
  return { recorded: own!, replayed: others, difference }
}

interface Units {
  readonly count: number
  /** The unit of each call, by index of the call. */
  readonly of: Int32Array
  /** True if a unit is a task, false if it is a call without a task; by unit. */
  readonly isTask: readonly boolean[]
}

function unitsOf(calls: readonly RecordedCall[]): Units {
  const known = new Map<string, number>()
  const isTask: boolean[] = []
  const of = Int32Array.from(calls, ({ task }) => {
    const found = task === undefined ? undefined : known.get(task)
    if (found !== undefined) return found
    if (task !== undefined) known.set(task, isTask.length)
    return isTask.push(task !== undefined) - 1
  })
  return { count: isTask.length, of, isTask }
}

/** Returns the number of tasks. Calls without a task do not count. */
export const tasksIn = (calls: readonly RecordedCall[]): number =>
  unitsOf(calls).isTask.filter((isTask) => isTask).length

/** Sums of a play by unit. */
class PlaySums {
  /** Per unit: calls, valid, eligible and good calls, attempts, retries, and whether a call failed. */
  readonly #sums: Float64Array
  readonly #units: Units
  /** Number of rejections per unit, by reason. */
  readonly rejections = new Map<string, Float64Array>()
  /** Durations of valid calls in ascending order, and the unit of each. */
  readonly #durations: Float64Array
  readonly #unitOf: Int32Array

  constructor(units: Units, { calls }: Play) {
    this.#units = units
    this.#sums = new Float64Array(units.count * SUMS)
    const sums = this.#sums
    const timed: { tookMs: number; unit: number }[] = []
    calls.forEach(({ result, isWrong, tookMs, attempts, retries, rejections }, index) => {
      const unit = units.of[index]!
      const at = unit * SUMS
      const isValid = result !== 'cancelled' && result !== 'caller_error'
      const added = [
        1,
        +isValid,
        +(isValid && result !== 'rejected'),
        +(isValid && !isWrong),
        attempts,
        retries,
      ]
      added.forEach((value, which) => (sums[at + which]! += value))
      if (isWrong) sums[at + FAILED] = 1
      if (isValid) timed.push({ tookMs, unit })
      for (const reason of rejections) {
        const counts = this.rejections.get(reason) ?? new Float64Array(units.count)
        this.rejections.set(reason, counts)
        counts[unit]!++
      }
    })
    timed.sort((one, other) => one.tookMs - other.tookMs)
    this.#durations = Float64Array.from(timed, ({ tookMs }) => tookMs)
    this.#unitOf = Int32Array.from(timed, ({ unit }) => unit)
  }

  /**
   * Returns all figures, followed by the share of rejections for each reason. Each unit counts `weights[unit]` times.
   */
  values(weights: Int32Array, reasons: readonly string[]): number[] {
    const total = new Float64Array(SUMS)
    const ofReasons = new Float64Array(reasons.length)
    const counts = reasons.map((reason) => this.rejections.get(reason))
    let [tasks, failed] = [0, 0]
    for (let unit = 0; unit < weights.length; unit++) {
      const weight = weights[unit]!
      if (weight === 0) continue
      for (let which = 0; which < SUMS; which++) total[which]! += weight * this.#sums[unit * SUMS + which]!
      counts.forEach((count, which) => (ofReasons[which]! += weight * (count?.[unit] ?? 0)))
      if (this.#units.isTask[unit] !== true) continue
      tasks += weight
      failed += weight * this.#sums[unit * SUMS + FAILED]!
    }
    const [calls = 0, valid = 0, eligible = 0, good = 0, attempts = 0, retries = 0] = total
    const share = (part: number, whole: number, none: number) => (whole === 0 ? none : part / whole)
    return [
      share(good, valid, 1),
      share(good, eligible, 1),
      share(failed, tasks, 0),
      ...this.#quantiles(weights, valid),
      share(attempts, calls, 0),
      share(retries, calls, 0),
      ...Array.from(ofReasons, (count) => share(count, calls, 0)),
    ]
  }

  /** Returns the number of units with a call that counts for a figure; for `undefined`, every call counts. */
  unitsOf(figure: Figure | undefined): number {
    const counts = (unit: number) => {
      if (figure === 'blastRadius') return this.#units.isTask[unit] === true
      return this.#sums[unit * SUMS + (figure === 'tcsr' ? VALID : figure === 'eta' ? ELIGIBLE : 0)]! > 0
    }
    return Array.from({ length: this.#units.count }, (_, unit) => unit).filter(counts).length
  }

  /** Returns the quantiles: the smallest durations not exceeded by these shares of the durations. */
  #quantiles(weights: Int32Array, count: number): number[] {
    const found: number[] = []
    let passed = 0
    for (let at = 0; at < this.#durations.length && found.length < QUANTILES.length; at++) {
      passed += weights[this.#unitOf[at]!]!
      while (found.length < QUANTILES.length && passed >= QUANTILES[found.length]! * count - 1e-9)
        found.push(this.#durations[at]!)
    }
    return QUANTILES.map((_, at) => found[at] ?? NaN)
  }
}

const SUMS = 7
const VALID = 1
const ELIGIBLE = 2
const FAILED = 6
const QUANTILES = [0.5, 0.95, 0.99] as const

/** Returns the values by resample and column. Units must be in order of their start. */
function resample(
  sums: readonly (readonly PlaySums[])[],
  units: number,
  reasons: readonly string[],
): number[][][] {
  const random = createRandom(1)
  const below = (count: number) => Math.floor(random() * count)
  const length = Math.max(1, Math.floor(units / BLOCKS))
  return Array.from({ length: resamplesFor(units * sums.length) }, () => {
    const weights = new Int32Array(units)
    for (let drawn = 0, from = 0; drawn < units; drawn++) {
      if (drawn % length === 0) from = below(units)
      weights[(from + (drawn % length)) % units]!++
    }
    const play = random()
    return sums.map((plays) => plays[Math.floor(play * plays.length)]!.values(weights, reasons))
  })
}

function meanOf(values: readonly (readonly number[])[]): number[] {
  return values[0]!.map((_, at) => values.reduce((sum, one) => sum + one[at]!, 0) / values.length)
}

/** Returns true if a figure is a share in [0, 1]. `undefined` stands for a rejection. */
const isShare = (figure: Figure | undefined): boolean =>
  figure === undefined || figures[figure].unit === 'points'

const allAgree = (values: readonly number[]): boolean => values.every((value) => value === values[0])

/**
 * Returns the interval of a share equal in all resamples, by the number of its tasks. Wilson's interval: 0 of n may be
 * up to 3.8 in n. With `isPredicted`, the interval is for another run of the same size. The probability that all of k
 * exceptions among 2n tasks are in one given half is 2^-k. From 6 exceptions on the probability is below 2.5 %, so
 * expect up to 5 of n.
 */
function whereAllAgree(estimate: number, units: number, isPredicted: boolean): Interval {
  const known = Math.min(1, estimate)
  if (!isPredicted) return { ...wilsonInterval({ successes: known * units, units }, ALPHA), estimate }
  const apart = units === 0 ? 1 : Math.min(1, MOST_EXCEPTIONS / units)
  return { estimate, low: Math.max(0, known - apart), high: Math.max(estimate, Math.min(1, known + apart)) }
}

const MOST_EXCEPTIONS = Math.ceil(Math.log2(2 / ALPHA)) - 1

/** Returns the largest possible value of a figure; infinity for rejections, because a call may have several. */
const mostOf = (figure: Figure | undefined): number =>
  figure !== undefined && figures[figure].unit === 'points' ? 1 : Infinity

function percentiles(estimate: number, resampled: readonly number[]): Interval {
  const sorted = resampled.toSorted((one, other) => one - other)
  const rank = Math.max(1, Math.floor((sorted.length + 1) * (ALPHA / 2)))
  return { estimate, low: sorted[rank - 1]!, high: sorted[sorted.length - rank]! }
}

/** Returns the 95 % prediction interval: another run differs from this run as much as two resamples differ. */
function predicted(estimate: number, resampled: readonly number[], most: number): Interval {
  const half = resampled.length >> 1
  const apart = resampled.map((value, at) => value - resampled[(at + half) % resampled.length]!)
  const { low, high } = percentiles(0, apart)
  return { estimate, low: Math.max(0, estimate + low), high: Math.min(most, estimate + high) }
}
