import { lines, stat } from '../../panels.ts'
import { perSecond, query } from '../../query.ts'
import { ARM, recorded } from './chosen.ts'

export const tasks = [
  stat({
    title: 'Tasks',
    about: 'Tasks per second that are over.',
    unit: 'reqps',
    width: 8,
    queries: [perSecond('breakwater_intents_total', ARM, ['arm'])],
  }).height(8),
  lines({
    title: 'Tasks without a failed call',
    about: 'Share of tasks of which no call failed: what is left of 1 by the blast radius.',
    unit: 'percentunit',
    queries: [query(`1 - arm:breakwater_blast_radius:ratio_rate5m${ARM}`, '{{arm}}')],
  }),
  lines({
    title: 'Tasks that succeeded',
    about: 'Share of tasks of which somebody reported how they ended (POST /admin/outcomes).',
    unit: 'percentunit',
    queries: [query(`1 - arm:breakwater_intent_failure:ratio_rate5m${ARM}`, '{{arm}}')],
  }),
  lines({
    title: 'Blast radius',
    about: 'Share of tasks that met at least one call that failed.',
    unit: 'percentunit',
    width: 12,
    queries: [recorded('blast_radius')],
  }),
  lines({
    title: 'Calls per intent',
    about: 'TCAF: how many tool calls a task makes.',
    width: 12,
    queries: [recorded('tcaf')],
  }),
]
