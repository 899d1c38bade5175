import { board } from '../board.ts'
import { budget } from './overview/budget.ts'
import { calls } from './overview/calls.ts'
import { now } from './overview/now.ts'
import { tasks } from './overview/tasks.ts'
import { worth } from './overview/worth.ts'

export const overview = board({
  uid: 'overview',
  title: 'Overview',
  about: 'Quality of tools: the share of replies, and the share of right replies.',
  choices: [{ name: 'server', of: 'breakwater_server_up' }],
  rows: [
    { title: 'Now', panels: now },
    { title: 'Availability × correctness', panels: worth },
    { title: 'Calls', panels: calls },
    { title: 'Tasks', panels: tasks },
    { title: 'Error budget', panels: budget },
  ],
})
