import { dashed, pages, thresholds } from '../../colours.ts'
import { lines, stat } from '../../panels.ts'
import { query } from '../../query.ts'
import { SERVER } from './server.ts'

/** Attempts over the whole period of the objective: rates of 5 minutes, added up. */
const month = (part: string) => `avg_over_time(server:breakwater_attempts_${part}:rate5m${SERVER}[30d])`

export const budget = [
  stat({
    title: 'Error budget left of 30 days',
    about:
      'By server; below 0 the objective is missed. Attempts that failed or came back wrong count, and not what nobody could check.',
    unit: 'percentunit',
    steps: [
      [null, 'red'],
      [0, 'orange'],
      [0.25, 'green'],
    ],
    queries: [
      query(
        `1 - (1 - ${month('good')} / (${month('eligible')} > 0)) / (1 - scalar(breakwater:eta_objective))`,
        '{{server}}',
      ),
    ],
  }).height(8),
  lines({
    title: 'Error budget left of 3 days',
    about: 'Of what the last three days may spend, by server: how things go lately.',
    unit: 'percentunit',
    width: 10,
    queries: [query(`1 - server:breakwater_eta_burn:rate3d${SERVER}`, '{{server}}')],
  }).min(-1),
  lines({
    title: 'Burn rate',
    about:
      'How many times faster than allowed the error budget is spent. Tools are paged about at 14.4 for an hour, 6 for six hours.',
    width: 10,
    queries: ['1h', '6h', '3d'].map((window) =>
      query(`server:breakwater_eta_burn:rate${window}${SERVER}`, `{{server}} ${window}`),
    ),
  })
    .thresholds(thresholds(pages))
    .thresholdsStyle(dashed),
]
