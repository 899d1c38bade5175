import { letters } from '../../colours.ts'
import { table } from '../../panels.ts'
import { query } from '../../query.ts'
import { ofPlan } from './chosen.ts'

const grades = [
  ['D', 'red'],
  ['C', 'orange'],
  ['B', 'yellow'],
  ['A', 'green'],
] as const

export const graded = [
  table({
    title: 'Grades',
    about:
      'Grade over the last 20 runs of a plan, and the number of runs behind the grade: those that are evidence. Fewer than 4 give no grade, so run the plan more often. Few runs cannot give a good grade: ten of ten give B.',
    queries: [
      query(ofPlan('grade'), 'grade'),
      query(ofPlan('graded_runs'), 'runs behind the grade'),
      query(ofPlan('applied_faults'), 'faults that took effect in the last run'),
    ],
  }).overrideByName('grade', [{ id: 'mappings', value: letters(grades) }]),
]
