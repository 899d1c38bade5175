import { words } from '../../colours.ts'
import { stack, stat } from '../../panels.ts'
import { perSecond, query } from '../../query.ts'
import { ARM } from './chosen.ts'

export const experiment = [
  stat({
    title: 'Experiments',
    about: 'Whether each runs, at any gateway. One that has ended keeps its numbers until it begins anew.',
    width: 6,
    queries: [query('max by (experiment) (breakwater_experiment_running)', '{{experiment}}')],
  })
    .mappings(words(['ended', 'text'], ['runs', 'blue']))
    .height(8),
  stat({
    title: 'Units',
    about:
      'Tasks, as a rule, in the run of now or else the last one. Shares that differ from what was configured are a sample ratio mismatch: believe nothing.',
    width: 8,
    queries: [query(`sum by (arm) (breakwater_experiment_units${ARM})`, '{{arm}}')],
  }).height(8),
  stack({
    title: 'What calls were assigned by',
    about:
      'Unit: by what the experiment assigns by. Fallback: they did not say that, and went by their session or tenant. Not drawn, excluded: they take no part. Dropped: there are too many units, and nothing is kept of them.',
    unit: 'reqps',
    width: 10,
    queries: [perSecond('breakwater_experiment_calls_total', '', ['experiment', 'assigned'])],
  }),
]
