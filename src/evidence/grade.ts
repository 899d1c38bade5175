import { wilsonInterval } from '../experiments/statistics/proportions.ts'
import type { RunSummary } from './summary.ts'

/** Grades by the least share, the best first. */
const grades = [
  ['A', 0.9],
  ['B', 0.7],
  ['C', 0.5],
  ['D', 0],
] as const

/** A grade is about this many of a plan's last runs, unless somebody asks for another number. */
export const GRADED_RUNS = 20

/** Fewer decided runs get no grade. */
const LEAST_RUNS = 4

export type Grade = (typeof grades)[number][0] | 'not enough data'

export interface Graded {
  readonly grade: Grade
  /** Runs with a verdict other than `no evidence`, and the parts of these runs. */
  readonly runs: number
  readonly passed: number
  readonly weak: number
  readonly failed: number
  readonly noEvidence: number
  /** Lower bound of the 95 % interval of the share of runs that held, in [0, 1]; undefined without runs. */
  readonly bound: number | undefined
  /** Share of the runs within the promised recovery time; undefined without a promise. */
  readonly withinRto: number | undefined
  /** Words that explain the grade. */
  readonly reasons: readonly string[]
}

type Judged = Pick<RunSummary, 'verdict' | 'rto'>

/**
 * Grades runs by the lower bound of Wilson's interval of the share that held. A grade is never better than the share of
 * runs within their promised recovery time: a run that promised a time and did not recover was not within.
 */
export function gradeOf(runs: readonly Judged[]): Graded {
  const count = (verdict: RunSummary['verdict']) => runs.filter((run) => run.verdict === verdict).length
  const [passed, weak, failed] = [count('passed'), count('held (weak)'), count('failed')]
  const decided = passed + weak + failed
  const bound =
    decided === 0 ? undefined : wilsonInterval({ successes: passed + weak, units: decided }, 0.05).low
  const promised = runs.filter(({ verdict, rto }) => verdict !== 'no evidence' && rto.promisedMs !== null)
  const kept = promised.filter(
    ({ rto: { promisedMs, measuredMs } }) => measuredMs !== null && measuredMs <= promisedMs!,
  )
  const withinRto = promised.length === 0 ? undefined : kept.length / promised.length
  const known = { runs: decided, passed, weak, failed, noEvidence: count('no evidence'), bound, withinRto }
  if (bound === undefined || decided < LEAST_RUNS)
    return {
      ...known,
      grade: 'not enough data',
      reasons: [`a grade needs ${LEAST_RUNS} runs that are evidence; found: ${decided}`],
    }
  const letterOf = (share: number) => grades.find(([, least]) => share >= least)![0]
  const grade = letterOf(Math.min(bound, withinRto ?? 1))
  return {
    ...known,
    grade,
    reasons: [
      `${passed + weak} of ${decided} held: at least ${percent(bound)} with 95 % confidence`,
      ...(withinRto !== undefined && withinRto < bound
        ? [`only ${kept.length} of ${promised.length} recovered within the promised time`]
        : []),
      ...(weak > 0 ? [`${weak} of these without proof`] : []),
    ],
  }
}

const percent = (share: number) => `${Math.floor(share * 100)} %`
