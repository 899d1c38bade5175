import { lines, table } from '../../panels.ts'
import { query } from '../../query.ts'
import { SERVER } from './server.ts'

const tools = (measure: string, legend: string) =>
  query(`server_tool:breakwater_${measure}:ratio_rate5m${SERVER}`, legend)

/** Links a row of the table to the dashboard of its tool. */
const toTool = {
  title: 'Look at ${__value.text}',
  url:
    '/d/breakwater-tool?var-datasource=${datasource}&var-server=${__data.fields.server}' +
    '&var-tool=${__data.fields.tool}&${__url_time_range}',
}

export const worth = [
  lines({
    title: 'Effective availability by server',
    about: 'Availability × correctness, and the objective.',
    unit: 'percentunit',
    queries: [
      query(`server:breakwater_eta:ratio_rate5m${SERVER}`, '{{server}}'),
      query('breakwater:eta_objective', 'objective'),
    ],
  }),
  lines({
    title: 'Availability by server',
    about: 'The first factor: the share of attempts with a reply.',
    unit: 'percentunit',
    queries: [query(`server:breakwater_availability:ratio_rate5m${SERVER}`, '{{server}}')],
  }),
  lines({
    title: 'Correctness by server',
    about: 'The second factor: the share of replies not known to be wrong.',
    unit: 'percentunit',
    queries: [query(`server:breakwater_correctness:ratio_rate5m${SERVER}`, '{{server}}')],
  }),
  table({
    title: 'Tools',
    about:
      'Over the last 5 minutes. The third column is the product of the first two. Each tool links to its own dashboard.',
    unit: 'percentunit',
    queries: [
      tools('availability', 'availability'),
      tools('correctness', 'correctness'),
      tools('eta', 'effective availability'),
      tools('unchecked', 'not checked'),
      tools('tcsr', 'calls that succeeded (TCSR)'),
    ],
  }).overrideByName('tool', [{ id: 'links', value: [toTool] }]),
]
