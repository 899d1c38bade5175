import { board } from '../board.ts'
import { overdue } from './runs/due.ts'
import { graded } from './runs/grades.ts'
import { history, now } from './runs/history.ts'
import { last } from './runs/last.ts'
import { recoveries } from './runs/recovery.ts'

export const runs = board({
  uid: 'runs',
  title: 'Runs',
  about:
    'Tests of resilience: which plans are overdue, which failed or proved nothing, and whether recovery is as fast as promised.',
  choices: [{ name: 'plan', of: 'breakwater_runs_ended_total' }],
  rows: [
    { title: 'Due', panels: overdue },
    { title: 'Last runs', panels: last },
    { title: 'Grades', panels: graded },
    { title: 'Recovery', panels: recoveries },
    { title: 'Verdicts over time', panels: history },
    { title: 'Now', panels: now },
  ],
})
