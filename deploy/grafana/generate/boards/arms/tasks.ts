import { lines, stat } from '../../panels.ts'
import { perSecond, query } from '../../query.ts'
import { ARM, recorded } from './chosen.ts'

export const tasks = [
  stat({
    title: 'Tasks',
    about: 'Ended tasks per second.',
    unit: 'reqps',
    width: 8,
    queries: [perSecond('breakwater_intents_total', ARM, ['arm'])],
  }).height(8),
  lines({
    title: 'Tasks without a failed call',
    about: 'Share of tasks without a failed call: 1 minus the blast radius.',
    unit: 'percentunit',
    queries: [query(`1 - arm:breakwater_blast_radius:ratio_rate5m${ARM}`, '{{arm}}')],
  }),
  lines({
    title: 'Tasks that succeeded',
    about: 'Share of successes among reported tasks (POST /admin/outcomes).',
    unit: 'percentunit',
    queries: [query(`1 - arm:breakwater_intent_failure:ratio_rate5m${ARM}`, '{{arm}}')],
  }),
  lines({
    title: 'Blast radius',
    about: 'Share of tasks with at least one failed call.',
    unit: 'percentunit',
    width: 12,
    queries: [recorded('blast_radius')],
  }),
  lines({
    title: 'Calls per intent',
    about: 'TCAF: tool calls per task.',
    width: 12,
    queries: [recorded('tcaf')],
  }),
]
