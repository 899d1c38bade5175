import { lines, stack, stat } from '../../panels.ts'
import { query } from '../../query.ts'
import { PLAN } from './chosen.ts'

/** Colours by verdict, the best first. */
const colours = [
  ['passed', 'green'],
  ['held (weak)', 'yellow'],
  ['failed', 'red'],
  ['no evidence', 'text'],
] as const

/** Colours the lines of verdicts. */
const coloured = (panel: ReturnType<typeof lines>) =>
  colours.reduce(
    (built, [verdict, fixedColor]) =>
      built.overrideByName(verdict, [{ id: 'color', value: { mode: 'fixed', fixedColor } }]),
    panel,
  )

/** Growth of a count since the start of the dashboard's range: whole numbers, unlike those of `increase`. */
const since = (metric: string, by: string) =>
  `sum by (${by}) (${metric}${PLAN} - min_over_time(${metric}${PLAN}[$__range] @ end()))`

export const history = [
  stack({
    title: 'Plans by the verdict of their last run',
    about:
      'Each gateway counts its own plans. When `failed` grows, see the table of last runs; when `no evidence` grows, tests run but prove nothing.',
    width: 12,
    queries: [query(`count by (verdict) (breakwater_plan_last_run_timestamp_seconds${PLAN})`, '{{verdict}}')],
  }),
  lines({
    title: 'Runs ended since the start of the range, by verdict',
    about:
      'Each step is a run. `held (weak)` held with too few calls for a proof: more calls make it `passed`. Flat lines: nobody runs plans.',
    width: 12,
    queries: [query(since('breakwater_runs_ended_total', 'verdict'), '{{verdict}}')],
  }),
].map(coloured)

export const now = [
  stat({
    title: 'Runs under way',
    about:
      'Guarded runs that inject faults now, or are about to. Ask `breakwater experiment list` before a deployment.',
    width: 6,
    queries: [query('count(breakwater_run_active) or vector(0)', 'under way')],
  }).height(8),
  lines({
    title: 'Effective availability of calls, by server',
    about:
      'Match dips with the marks of runs: a dip during a run is probably an effect of its faults, and a dip without a mark has another cause.',
    unit: 'percentunit',
    width: 9,
    queries: [query('server:breakwater_call_eta:ratio_rate5m', '{{server}}')],
  }),
  lines({
    title: 'Faults injected into calls, by fault',
    about:
      'Faults of runs and of the config. A run without faults compares policy sets, or has begun nothing yet.',
    unit: 'reqps',
    width: 9,
    queries: [
      query('sum by (fault) (rate(breakwater_faults_injected_total[$__rate_interval]))', '{{fault}}'),
    ],
  }),
]
