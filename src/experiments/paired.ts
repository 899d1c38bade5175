import type { Millis } from '../mesh/clock.ts'
import { ALPHA } from './judge.ts'
import { metricOf } from './metrics.ts'
import type { SettingDifference } from './report.ts'
import { mcNemarExact, type Pair, pairedInterval } from './statistics/pairs.ts'
import { newcombePairedInterval, type PairCounts } from './statistics/proportions.ts'
import { differenceInWords, pInWords, sizeInWords } from './statistics/sentences.ts'
import type { Interval } from './statistics/unit-estimates.ts'
import type { VerdictResult } from './statistics/verdict.ts'
import { numbered } from '../units/numbered.ts'

export interface Twin {
  readonly outcome: 'succeeded' | 'failed'
  readonly calls: number
  /** Calls with the expected answer. */
  readonly right: number
  /** Attempts at servers for all calls; NaN when unknown. */
  readonly attempts: number
  /** The duration of each call as seen by the agent, in milliseconds. */
  readonly durations: readonly Millis[]
}

export interface TwinPair {
  readonly task: string
  readonly kind: string
  readonly control: Twin
  readonly treatment: Twin
}

/** A measure of tasks, as a mean over the tasks of each arm. */
export interface PairedMean {
  readonly name: 'right_calls' | 'attempts_per_call' | 'mean_ms'
  readonly about: string
  readonly unit: 'points' | 'ms' | 'count'
  readonly control: number
  readonly treatment: number
  /** Treatment minus control over the pairs, with a 95 % interval. */
  readonly difference: Interval
}

/** A quantile of the durations of all calls, in milliseconds; NaN without calls. */
export interface ArmQuantile {
  readonly name: 'p50' | 'p95' | 'p99'
  readonly control: number
  readonly treatment: number
}

/** The result of a comparison of two policy sets, `control` and `treatment`, on the same tasks. */
export interface Comparison {
  readonly control: string
  readonly treatment: string
  readonly result: VerdictResult
  readonly sentence: string
  /** Difference in the share of successful tasks: treatment minus control, in [−1, 1], with a 95 % interval. */
  readonly difference: Interval
  /** McNemar's exact test, two-sided. */
  readonly p: number
  readonly pairs: PairCounts
  readonly kinds: Readonly<Record<string, PairCounts>>
  readonly means: readonly PairedMean[]
  readonly quantiles: readonly ArmQuantile[]
}

/** The smallest relevant difference in the share of successful tasks. */
const MATTERS = 0.02

/** Names of the arms for sentences. `flaws`: why the measurement proves nothing; default: none. */
export interface CompareWords {
  readonly control: string
  readonly treatment: string
  readonly flaws?: readonly string[]
}

/** Returns a comparison of the arms, pair by pair. The comparison is valid for a single look, after all pairs. */
export function compareTwins(pairs: readonly TwinPair[], words: CompareWords): Comparison {
  const { control, treatment, flaws = [] } = words
  const counts = countsOf(pairs)
  const difference = newcombePairedInterval(counts, ALPHA)
  const p = mcNemarExact(counts.controlOnly, counts.treatmentOnly)
  const kinds = [...new Set(pairs.map(({ kind }) => kind))].sort()
  return {
    control,
    treatment,
    ...verdictOf(difference, p, pairs.length, treatment, flaws),
    difference,
    p,
    pairs: counts,
    kinds: Object.fromEntries(
      kinds.map((kind) => [kind, countsOf(pairs.filter((pair) => pair.kind === kind))]),
    ),
    means: meansOf(pairs),
    quantiles: quantilesOf(pairs),
  }
}

function countsOf(pairs: readonly TwinPair[]): PairCounts {
  const counts = { both: 0, controlOnly: 0, treatmentOnly: 0, neither: 0 }
  for (const { control, treatment } of pairs) {
    const [c, t] = [control.outcome === 'succeeded', treatment.outcome === 'succeeded']
    counts[c ? (t ? 'both' : 'controlOnly') : t ? 'treatmentOnly' : 'neither']++
  }
  return counts
}

function verdictOf(
  difference: Interval,
  p: number,
  pairs: number,
  treatment: string,
  flaws: readonly string[],
): Pick<Comparison, 'result' | 'sentence'> {
  const metric = metricOf('task_success')
  if (pairs === 0) return { result: 'invalid', sentence: 'invalid: no pair was played to its end' }
  const found = differenceInWords(metric, difference, ALPHA, `${numbered(pairs, 'pair')}, ${pInWords(p)}`)
  if (flaws.length > 0) return { result: 'invalid', sentence: `invalid: ${flaws[0]}; ${treatment}: ${found}` }
  const { low, high } = difference
  // The interval and the test are different approximations: both must agree.
  if (low > 0 && p < ALPHA) return { result: 'better', sentence: `${treatment} wins: ${found}` }
  if (high < 0 && p < ALPHA) return { result: 'worse', sentence: `${treatment} loses: ${found}` }
  if (low >= -MATTERS && high <= MATTERS)
    return {
      result: 'no_difference_found',
      sentence: `no difference found: with ${treatment} ${found}; ${sizeInWords(metric, MATTERS)} would matter`,
    }
  return { result: 'inconclusive', sentence: `inconclusive: with ${treatment} ${found}` }
}

/** Metrics with a value per task, so long tasks weigh no more than short tasks. */
const measures: readonly (Pick<PairedMean, 'name' | 'about' | 'unit'> & {
  readonly of: (twin: Twin) => number
})[] = [
  {
    name: 'right_calls',
    about: 'Share of the calls of a task with the expected answer.',
    unit: 'points',
    of: ({ right, calls }) => right / calls,
  },
  {
    name: 'attempts_per_call',
    about: 'Attempts at servers per call of a task.',
    unit: 'count',
    of: ({ attempts, calls }) => attempts / calls,
  },
  {
    name: 'mean_ms',
    about: 'Mean duration of the calls of a task as seen by the agent, in milliseconds.',
    unit: 'ms',
    of: ({ durations }) => meanOf(durations),
  },
]

function meansOf(pairs: readonly TwinPair[]): PairedMean[] {
  return measures.map(({ name, about, unit, of }) => {
    // A pair is left out when the value of either twin is unknown.
    const measured = pairs
      .map(({ control, treatment }): Pair => [of(control), of(treatment)])
      .filter(([c, t]) => Number.isFinite(c) && Number.isFinite(t))
    return {
      name,
      about,
      unit,
      control: meanOf(measured.map(([c]) => c)),
      treatment: meanOf(measured.map(([, t]) => t)),
      difference: pairedInterval(measured, ALPHA),
    }
  })
}

const meanOf = (values: readonly number[]): number =>
  values.reduce((sum, value) => sum + value, 0) / values.length

const shown = { p50: 0.5, p95: 0.95, p99: 0.99 } as const

function quantilesOf(pairs: readonly TwinPair[]): ArmQuantile[] {
  const sorted = (arm: 'control' | 'treatment') =>
    Float64Array.from(pairs.flatMap((pair) => pair[arm].durations)).sort()
  const [control, treatment] = [sorted('control'), sorted('treatment')]
  return Object.entries(shown).map(([name, q]) => ({
    name: name as ArmQuantile['name'],
    control: quantile(control, q),
    treatment: quantile(treatment, q),
  }))
}

/** Returns the smallest value such that at least the share `q` of all values is not above it; NaN without values. */
const quantile = (sorted: Float64Array, q: number): number =>
  sorted[Math.max(0, Math.ceil(q * sorted.length) - 1)] ?? NaN

/** Fault decisions on the same attempt of twins, compared. */
export interface TwinDecisions {
  /** Decided in both arms. */
  readonly twice: number
  /** Decisions in `twice` that differ between the arms. */
  readonly different: number
  /** Decided in one arm only: the other arm ended earlier, or made no such attempt. */
  readonly once: number
}

/** The whole result of a paired run, as plain data. */
export interface PairedReport extends Comparison {
  readonly workload: string
  readonly seed: number
  /** The start of the run, ISO 8601. */
  readonly startedAt: string
  readonly ranMs: Millis
  /** Planned tasks per arm. */
  readonly planned: number
  readonly faults: {
    readonly names: readonly string[]
    /** Numbers of injected faults, by policy set and fate. */
    readonly fates: Readonly<Record<string, Readonly<Record<string, number>>>>
    /** First attempts of calls: twins with the same call meet the same decision. */
    readonly first: TwinDecisions
    /** Further attempts, made by policies. */
    readonly later: TwinDecisions
    /** A few calls with different decisions on the first attempt. */
    readonly examples: readonly string[]
  }
  readonly settings: readonly SettingDifference[]
  /** Why the run proves nothing, or less; empty for a sound run. */
  readonly flaws: readonly string[]
  /** Notes for the reader; the result stays sound. */
  readonly warnings: readonly string[]
  readonly twins: readonly TwinPair[]
}
