import type { Metrics } from './metrics.ts'
import { labelValue, OTHER } from './metrics/label-value.ts'
import type { Counter } from './metrics/instruments.ts'

/** Ended runs; `plan` undefined: all plans without a state of their own. */
export interface CountedRuns {
  readonly plan: string | undefined
  readonly kind: string
  readonly verdicts: Readonly<Record<string, number>>
  readonly reasons: Readonly<Record<string, number>>
}

/** The state of a plan. Times `…Ms` are durations, times `…At` milliseconds since the Unix epoch. */
export interface PlanFigures extends CountedRuns {
  readonly last: {
    readonly endedAt: number
    readonly verdict: string
    readonly state: string
    readonly reasons: readonly string[]
    readonly applied: number
  }
  readonly rto: { readonly promisedMs: number | null; readonly measuredMs: number | null }
  readonly grade: { readonly grade: string; readonly runs: number }
  readonly dueAt: number | undefined
}

/** The plans of the runs so far. */
export interface KnownPlans {
  readonly plans: readonly PlanFigures[]
  readonly left: readonly CountedRuns[]
}

type PlanMetrics = Pick<
  Metrics,
  | 'runsEnded'
  | 'runsWithoutEvidence'
  | 'planLastRun'
  | 'planApplied'
  | 'planRecovery'
  | 'planPromise'
  | 'planGrade'
  | 'planGraded'
  | 'planDue'
>

const numberOf: Readonly<Record<string, number>> = { A: 4, B: 3, C: 2, D: 1 }

/** Sets the counts of runs of earlier processes. Call at the start of the gateway: these runs are no news. */
export function restoreRuns(metrics: PlanMetrics, known: KnownPlans): void {
  countRuns(metrics, known)
  for (const counts of [metrics.runsEnded, metrics.runsWithoutEvidence]) counts.markKnown()
}

/** Sets the metrics of plans, at each scrape. `now`: milliseconds since the Unix epoch. */
export function collectPlans(metrics: PlanMetrics, known: KnownPlans, now: number): void {
  countRuns(metrics, known)
  const { planLastRun, planApplied, planRecovery, planPromise, planGrade, planGraded, planDue } = metrics
  const gauges = [planLastRun, planApplied, planRecovery, planPromise, planGrade, planGraded, planDue]
  for (const gauge of gauges) gauge.reset()
  for (const { plan, kind, last, rto, grade, dueAt } of known.plans) {
    const owner = ownerOf(plan, kind)
    const { verdict, state, reasons, endedAt, applied } = last
    const words = { verdict, reasons: reasons.join(' '), state: labelValue(state) }
    planLastRun.set({ ...owner, ...words }, endedAt / 1_000)
    planApplied.set(owner, applied)
    if (rto.measuredMs !== null) planRecovery.set(owner, rto.measuredMs / 1_000)
    if (rto.promisedMs !== null) planPromise.set(owner, rto.promisedMs / 1_000)
    const number = numberOf[grade.grade]
    if (number !== undefined) planGrade.set(owner, number)
    planGraded.set(owner, grade.runs)
    if (dueAt !== undefined) planDue.set(owner, (dueAt - now) / 1_000)
  }
}

/** Sets the gauge of runs under way; `running`: the plan of the guarded run. */
export function collectActiveRun(
  { runActive }: Pick<Metrics, 'runActive'>,
  running: string | undefined,
): void {
  runActive.reset()
  if (running !== undefined) runActive.set(ownerOf(running, 'guarded'), 1)
}

function countRuns({ runsEnded, runsWithoutEvidence }: PlanMetrics, { plans, left }: KnownPlans): void {
  const owners = new Set<string>()
  for (const { plan, kind, verdicts, reasons } of [...plans, ...left]) {
    const owner = ownerOf(plan, kind)
    owners.add(keyOf(owner))
    for (const [verdict, runs] of Object.entries(verdicts))
      runsEnded.series({ ...owner, verdict }).value = runs
    for (const [reason, runs] of Object.entries(reasons))
      runsWithoutEvidence.series({ ...owner, reason }).value = runs
  }
  const isGone = ({ plan = '', kind = '' }) => !owners.has(keyOf({ plan, kind }))
  for (const counts of [runsEnded, runsWithoutEvidence] as Counter<string>[]) counts.forget(isGone)
}

const ownerOf = (plan: string | undefined, kind: string) => ({
  plan: plan === undefined ? OTHER : labelValue(plan),
  kind,
})

const keyOf = ({ plan, kind }: { readonly plan: string; readonly kind: string }) => `${kind} ${plan}`
