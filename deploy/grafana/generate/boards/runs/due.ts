import { none } from '../../colours.ts'
import { stat, table } from '../../panels.ts'
import { query } from '../../query.ts'
import { ofPlan } from './chosen.ts'

const due = ofPlan('remaining_duration_seconds')

export const overdue = [
  stat({
    title: 'Overdue plans',
    about:
      'Plans whose time `every` has passed since their last run that is evidence. Run each plan of the table with a negative time.',
    width: 6,
    steps: none,
    queries: [query(`count(${due} < 0) or vector(0)`, 'overdue')],
  }).height(8),
  table({
    title: 'When plans are due',
    about:
      'Time until a plan with `every` is due, the longest overdue first. Negative: overdue, so run the plan now. A run without evidence does not count. To retire a plan, run it once more without `every`.',
    unit: 's',
    width: 18,
    queries: [query(`sort(${due})`, 'due in')],
  }),
]
