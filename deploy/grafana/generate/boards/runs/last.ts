import { none } from '../../colours.ts'
import { stat, table } from '../../panels.ts'
import { query } from '../../query.ts'
import { lastRuns, PLAN } from './chosen.ts'

const failed = lastRuns('failed')
const nothing = lastRuns('no evidence')

export const last = [
  stat({
    title: 'Plans whose last run failed',
    about:
      'The gate ended the run, or the hypothesis did not hold: a weakness. Read the run with `breakwater runs show`, repair, and run the plan again.',
    width: 6,
    steps: none,
    queries: [query(`count(${failed}) or vector(0)`, 'failed')],
  }).height(8),
  stat({
    title: 'Plans whose last run proved nothing',
    about:
      'Neither good nor bad news: the faults or the measurements had no effect. Correct the plan by the reasons in the table.',
    width: 6,
    steps: none,
    queries: [query(`count(${nothing}) or vector(0)`, 'no evidence')],
  }).height(8),
  table({
    title: 'Runs that proved nothing so far, by reason',
    about:
      'Ended runs in the index; a run with several reasons counts for each. Correct first the plan with the highest number.',
    width: 12,
    queries: [
      query(
        `sort_desc(sum by (plan, kind, reason) (breakwater_runs_without_evidence_total${PLAN}) > 0)`,
        'runs',
      ),
    ],
  }),
  table({
    title: 'Last runs that failed or proved nothing',
    about:
      'For `failed`, `aborted` means that the gate ended the run, and `deviated` that the hypothesis did not hold. For `no evidence`, docs/runs.md explains the reasons.',
    unit: 's',
    queries: [query(`time() - (${failed} or ${nothing})`, 'time since its end')],
  }),
]
