import { wilsonInterval } from '../experiments/statistics/proportions.ts'
import { gradeOf, type Graded } from './grade.ts'
import type { RunField } from './stored-run.ts'
import type { RunSummary } from './summary.ts'

/** The fields of runs that the answers need, by question. */
export const questionFields = {
  grades: ['kind', 'name', 'shape', 'verdict', 'rto'],
  recovery: ['kind', 'name', 'verdict', 'rto'],
  estimates: ['kind', 'name', 'estimates'],
  coverage: ['kind', 'targets', 'faults', 'verdict', 'at'],
  due: ['kind', 'name', 'verdict', 'at', 'everyMs'],
} as const satisfies Readonly<Record<string, readonly RunField[]>>

type Asked<Question extends keyof typeof questionFields> = Pick<
  RunSummary,
  (typeof questionFields)[Question][number]
>

/** A plan: runs of different kinds are different plans, even with the same name. */
interface Plan {
  readonly kind: RunSummary['kind']
  readonly plan: string
}

/** Runs by plan, in order of the plans' names, then of their kinds. */
export function byPlan<Run extends Pick<RunSummary, 'kind' | 'name'>>(
  runs: readonly Run[],
): readonly (Plan & { readonly runs: readonly Run[] })[] {
  const plans = new Map<string, Plan & { readonly runs: Run[] }>()
  for (const run of runs) {
    const { kind, name: plan } = run
    const key = JSON.stringify([plan, kind])
    const known = plans.get(key)
    if (known === undefined) plans.set(key, { kind, plan, runs: [run] })
    else known.runs.push(run)
  }
  return [...plans].sort(([a], [b]) => (a < b ? -1 : 1)).map(([, one]) => one)
}

/** The grade of each plan over its last runs. The reasons say when these runs did different things under one name. */
export const gradesIn = (runs: readonly Asked<'grades'>[], last: number): readonly (Plan & Graded)[] =>
  byPlan(runs).map(({ kind, plan, runs: all }) => {
    const own = all.slice(-last)
    const graded = gradeOf(own)
    const versions = new Set(own.map(({ shape }) => shape)).size
    const reasons = versions === 1 ? [] : [`over ${versions} versions of the plan`]
    return { kind, plan, ...graded, reasons: [...graded.reasons, ...reasons] }
  })

/** Recovery times of a plan in milliseconds. */
export interface Recovery extends Plan {
  readonly runs: number
  /** Runs without a recovery within the wait. */
  readonly notRecovered: number
  readonly median: number | undefined
  readonly worst: number | undefined
  readonly promised: number | undefined
  /** Runs within the promised time, of the runs with a promise. */
  readonly kept: number
  readonly promises: number
}

/** Returns the recovery times of each plan, over runs whose faults had an effect. */
export function recoveryIn(runs: readonly Asked<'recovery'>[]): readonly Recovery[] {
  return byPlan(runs).map(({ kind, plan, runs: own }) => {
    const shown = own.filter(({ verdict }) => verdict !== 'no evidence')
    const times = shown.flatMap(({ rto }) => rto.measuredMs ?? []).sort((a, b) => a - b)
    const promised = shown.filter(({ rto }) => rto.promisedMs !== null)
    const kept = promised.filter(({ rto }) => rto.measuredMs !== null && rto.measuredMs <= rto.promisedMs!)
    return {
      kind,
      plan,
      runs: shown.length,
      notRecovered: shown.length - times.length,
      median: medianOf(times),
      worst: times.at(-1),
      promised: promised.at(-1)?.rto.promisedMs ?? undefined,
      kept: kept.length,
      promises: promised.length,
    }
  })
}

/** The median of sorted numbers: for an even count, the mean of the two middle ones. */
const medianOf = (sorted: readonly number[]) =>
  sorted.length === 0
    ? undefined
    : (sorted[Math.floor((sorted.length - 1) / 2)]! + sorted[Math.floor(sorted.length / 2)]!) / 2

/** How often the authors of a plan were right. */
export interface Estimates extends Plan {
  readonly of: string
  readonly right: number
  readonly estimates: number
  /** 95 % interval of the share of right estimates, in [0, 1]. */
  readonly low: number
  readonly high: number
}

export function estimatesIn(runs: readonly Asked<'estimates'>[]): readonly Estimates[] {
  return byPlan(runs).flatMap(({ kind, plan, runs: own }) => {
    const all = own.flatMap(({ estimates }) => estimates)
    return [...new Set(all.map(({ of }) => of))].map((of): Estimates => {
      const ofKind = all.filter((one) => one.of === of)
      const right = ofKind.filter((one) => one.right).length
      const { low, high } = wilsonInterval({ successes: right, units: ofKind.length }, 0.05)
      return { kind, plan, of, right, estimates: ofKind.length, low, high }
    })
  })
}

/** The tests of a server with a type of fault. */
export interface Coverage {
  readonly server: string
  readonly fault: string
  readonly runs: number
  /** Runs whose faults had a proven effect. */
  readonly evidence: number
  /** Milliseconds since the epoch; undefined without evidence. */
  readonly lastEvidenceAt: number | undefined
}

/** Returns the tests of each server with each type of fault. A GameDay is left out: its experiments are runs, too. */
export function coverageIn(runs: readonly Asked<'coverage'>[]): readonly Coverage[] {
  const pairs = new Map<string, Coverage>()
  for (const { targets, faults, verdict, at } of runs.filter(({ kind }) => kind !== 'gameday'))
    for (const server of new Set(targets.map((one) => one.server)))
      for (const fault of new Set(faults.map(({ type }) => type))) {
        const key = `${server} ${fault}`
        const known = pairs.get(key)
        const isEvidence = verdict !== 'no evidence'
        pairs.set(key, {
          server,
          fault,
          runs: (known?.runs ?? 0) + 1,
          evidence: (known?.evidence ?? 0) + (isEvidence ? 1 : 0),
          lastEvidenceAt: isEvidence ? Math.max(at, known?.lastEvidenceAt ?? 0) : known?.lastEvidenceAt,
        })
      }
  return [...pairs.entries()].sort(([a], [b]) => (a < b ? -1 : 1)).map(([, one]) => one)
}

/** A plan that says how often it is due. Times in milliseconds since the epoch. */
export interface Due extends Plan {
  readonly everyMs: number
  /** The last run that is evidence; undefined without one. */
  readonly lastAt: number | undefined
  readonly dueAt: number
  readonly isOverdue: boolean
}

/** Returns when a plan is due: `everyMs` after its last run that is evidence; without such a run, since its first run. */
export const dueAt = (plan: Pick<Due, 'everyMs' | 'lastAt'> & { readonly firstAt: number }): number =>
  plan.lastAt === undefined ? plan.firstAt : plan.lastAt + plan.everyMs

/**
 * Returns the plans with `every`, the longest overdue first. A run without evidence is no test, and neither is a run of
 * a later time than `now`, because the clock of its gateway was wrong.
 */
export function dueIn(runs: readonly Asked<'due'>[], now: number): readonly Due[] {
  return byPlan(runs)
    .flatMap(({ kind, plan, runs: own }): Due[] => {
      const everyMs = own.at(-1)!.everyMs
      if (everyMs === null) return []
      const tests = own.filter(({ verdict, at }) => verdict !== 'no evidence' && at <= now)
      const lastAt = tests.length === 0 ? undefined : Math.max(...tests.map(({ at }) => at))
      const due = dueAt({ everyMs, lastAt, firstAt: Math.min(now, own[0]!.at) })
      return [{ kind, plan, everyMs, lastAt, dueAt: due, isOverdue: due <= now }]
    })
    .sort((a, b) => a.dueAt - b.dueAt)
}
