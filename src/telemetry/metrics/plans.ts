import { counter, gauge } from '../../mesh/metric-spec.ts'

const PLANS = '200 plans'

/** The metrics of runs in the index, by plan. All gauges are about the 200 plans that ran last. */
export const plans = {
  runsEnded: counter(
    'runs_ended_total',
    'Ended runs in the index, by verdict, runs of earlier processes included. The 200 plans that ran last have their own series; runs of plans that left these series count as `_other`.',
    ['plan', 'kind', 'verdict'],
    '200 plans and the kinds of runs × 4 verdicts',
  ),
  runsWithoutEvidence: counter(
    'runs_without_evidence_total',
    'Ended runs with the verdict `no evidence`, by reason; a run with several reasons counts for each. Plans as in `breakwater_runs_ended_total`.',
    ['plan', 'kind', 'reason'],
    '200 plans and the kinds of runs × 9 reasons',
  ),
  planLastRun: gauge(
    'plan_last_run_timestamp_seconds',
    'End of the last run of a plan, in seconds since the Unix epoch, labelled with the verdict of this run, its reasons if it is no evidence, and its state.',
    ['plan', 'kind', 'verdict', 'reasons', 'state'],
    PLANS,
  ),
  planApplied: gauge(
    'plan_applied_faults',
    'Injections of faults that took effect in the last run of a plan.',
    ['plan', 'kind'],
    PLANS,
  ),
  planRecovery: gauge(
    'plan_recovery_duration_seconds',
    'Time to recover in the last run of a plan that is evidence, in seconds; absent if this run measured no recovery.',
    ['plan', 'kind'],
    PLANS,
  ),
  planPromise: gauge(
    'plan_promised_recovery_duration_seconds',
    'Promised time to recover (`recovery.rto`) in the last run of a plan that is evidence, in seconds; absent without a promise.',
    ['plan', 'kind'],
    PLANS,
  ),
  planGrade: gauge(
    'plan_grade',
    'Grade of a plan over its last 20 runs: A is 4, B is 3, C is 2, D is 1; absent without enough data.',
    ['plan', 'kind'],
    PLANS,
  ),
  planGraded: gauge(
    'plan_graded_runs',
    'Runs behind the grade of a plan: those of its last 20 runs that are evidence.',
    ['plan', 'kind'],
    PLANS,
  ),
  planDue: gauge(
    'plan_remaining_duration_seconds',
    'Time that remains until a plan with `every` is due, in seconds, by the clock of the gateway; negative when overdue.',
    ['plan', 'kind'],
    PLANS,
  ),
  runActive: gauge(
    'run_active',
    '1 while a guarded run is under way, its baseline and its recovery included; else absent.',
    ['plan', 'kind'],
    '1',
  ),
} as const
