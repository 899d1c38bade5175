import { board } from '../board.ts'
import { calls } from './arms/calls.ts'
import { cost } from './arms/cost.ts'
import { experiment } from './arms/experiment.ts'
import { faults } from './arms/faults.ts'
import { tasks } from './arms/tasks.ts'
import { worth } from './arms/worth.ts'

export const arms = board({
  uid: 'arms',
  title: 'A/B',
  about:
    'Arms of an experiment side by side; the line without a name holds calls without an arm. Only the experiment’s statistics tell whether a difference is significant.',
  choices: [
    { name: 'server', of: 'breakwater_server_up' },
    { name: 'arm', of: 'breakwater_experiment_units' },
  ],
  rows: [
    { title: 'Experiment', panels: experiment },
    { title: 'Tasks', panels: tasks },
    { title: 'Quality for agents', panels: worth },
    { title: 'Calls', panels: calls },
    { title: 'Cost for servers, and state of policies', panels: cost },
    { title: 'Faults', panels: faults },
  ],
})
