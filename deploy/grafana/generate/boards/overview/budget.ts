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
      'By server; below 0 the objective is missed. Failed attempts and wrong replies count, unchecked replies do not.',
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
    about: 'Share of the last three days’ budget, by server: the recent trend.',
    unit: 'percentunit',
    width: 10,
    queries: [query(`1 - server:breakwater_eta_burn:rate3d${SERVER}`, '{{server}}')],
  }).min(-1),
  lines({
    title: 'Burn rate',
    about:
      'How many times faster than allowed the error budget is spent. A tool pages at 14.4 over an hour and at 6 over six hours.',
    width: 10,
    queries: ['1h', '6h', '3d'].map((window) =>
      query(`server:breakwater_eta_burn:rate${window}${SERVER}`, `{{server}} ${window}`),
    ),
  })
    .thresholds(thresholds(pages))
    .thresholdsStyle(dashed),
]
