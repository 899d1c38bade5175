import { words } from '../../colours.ts'
import { stack, stat } from '../../panels.ts'
import { perSecond, query } from '../../query.ts'
import { ARM } from './chosen.ts'

export const experiment = [
  stat({
    title: 'Experiments',
    about:
      '`runs` if any gateway runs the experiment. An ended experiment keeps its numbers until a new run.',
    width: 6,
    queries: [query('max by (experiment) (breakwater_experiment_running)', '{{experiment}}')],
  })
    .mappings(words(['ended', 'text'], ['runs', 'blue']))
    .height(8),
  stat({
    title: 'Units',
    about:
      'Units, usually tasks, in the current or last run. Shares that differ from the configured shares are a sample ratio mismatch: do not trust the results.',
    width: 8,
    queries: [query(`sum by (arm) (breakwater_experiment_units${ARM})`, '{{arm}}')],
  }).height(8),
  stack({
    title: 'Calls by kind of assignment',
    about:
      'Unit: assigned by the experiment’s unit. Fallback: assigned by session or tenant, because the call named no unit. Not drawn, excluded: not in the experiment. Dropped: too many units, so nothing is recorded.',
    unit: 'reqps',
    width: 10,
    queries: [perSecond('breakwater_experiment_calls_total', '', ['experiment', 'assigned'])],
  }),
]
