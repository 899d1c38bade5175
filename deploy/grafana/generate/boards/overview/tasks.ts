import { lines, stack } from '../../panels.ts'
import { perSecond, query } from '../../query.ts'

export const tasks = [
  lines({
    title: 'Successful tasks',
    about:
      'Success as reported to POST /admin/outcomes, and by calls: the share of tasks without a failed call. If more ' +
      'tasks succeed than have good calls, agents recover; if fewer do, tasks fail for other reasons than tools.',
    unit: 'percentunit',
    queries: [
      query('1 - gateway:breakwater_intent_failure:ratio_rate5m', 'reported as succeeded'),
      query('1 - gateway:breakwater_blast_radius:ratio_rate5m', 'met no failed call'),
    ],
  }),
  lines({
    title: 'Failed tasks, with and without failed calls',
    about:
      'Share of reported tasks that failed, with a failed call and without. The second line is the ' +
      'failure rate without bad calls; the distance between the lines is the cost of failed calls.',
    unit: 'percentunit',
    queries: [query('calls:breakwater_intent_failure:ratio_rate5m', 'calls {{calls}}')],
  }),
  stack({
    title: 'Reports',
    about:
      'Reports of tasks’ ends, by the success of their calls. Unlinked reports do not count: the task is unknown or forgotten ' +
      '(telemetry.intents.remember), several tasks share its name, or an earlier report said the opposite.',
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
