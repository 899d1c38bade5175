import { lines, stack } from '../../panels.ts'
import { perSecond, query } from '../../query.ts'

export const tasks = [
  lines({
    title: 'Tasks that went well',
    about:
      'As reported to POST /admin/outcomes, and as their calls look: the share of tasks that met no failed call. Where more ' +
      'tasks succeed than that, agents recover; where fewer do, tools are not what they fail of.',
    unit: 'percentunit',
    queries: [
      query('1 - gateway:breakwater_intent_failure:ratio_rate5m', 'reported as succeeded'),
      query('1 - gateway:breakwater_blast_radius:ratio_rate5m', 'met no failed call'),
    ],
  }),
  lines({
    title: 'Tasks that failed, by what their calls did',
    about:
      'The share of reported tasks that failed: of those that met a failed call, and of those that met none. The second is ' +
      'what fails anyway; the distance between them is what failed calls cost.',
    unit: 'percentunit',
    queries: [query('calls:breakwater_intent_failure:ratio_rate5m', 'calls {{calls}}')],
  }),
  stack({
    title: 'Reports',
    about:
      'Reports of how tasks ended, by what their calls did. Unlinked ones count for nothing: their task is unknown or forgotten ' +
      '(telemetry.intents.remember), several have its name, or the opposite was reported before.',
    unit: 'reqps',
    queries: [
      {
        ...perSecond('breakwater_intent_outcomes_total', '', ['outcome', 'calls']),
        legend: '{{outcome}}, calls {{calls}}',
      },
      {
        ...perSecond('breakwater_intent_outcomes_unlinked_total', '', ['reason']),
        legend: 'unlinked: {{reason}}',
      },
    ],
  }),
]
