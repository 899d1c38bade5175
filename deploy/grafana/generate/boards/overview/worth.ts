import { lines, table } from '../../panels.ts'
import { query } from '../../query.ts'
import { SERVER } from './server.ts'

const tools = (measure: string, legend: string) =>
  query(`server_tool:breakwater_${measure}:ratio_rate5m${SERVER}`, legend)

/** From a row of the table to the dashboard of its tool. */
const toTool = {
  title: 'Look at ${__value.text}',
  url:
    '/d/breakwater-tool?var-datasource=${datasource}&var-server=${__data.fields.server}' +
    '&var-tool=${__data.fields.tool}&${__url_time_range}',
}

export const worth = [
  lines({
    title: 'Effective availability by server',
    about: 'Availability × correctness, and what is aimed at.',
    unit: 'percentunit',
    queries: [
      query(`server:breakwater_eta:ratio_rate5m${SERVER}`, '{{server}}'),
      query('breakwater:eta_objective', 'objective'),
    ],
  }),
  lines({
    title: 'Availability by server',
    about: 'The first factor: did anything come back?',
    unit: 'percentunit',
    queries: [query(`server:breakwater_availability:ratio_rate5m${SERVER}`, '{{server}}')],
  }),
  lines({
    title: 'Correctness by server',
    about: 'The second factor: of what came back, the share that is not known to be wrong.',
    unit: 'percentunit',
    queries: [query(`server:breakwater_correctness:ratio_rate5m${SERVER}`, '{{server}}')],
  }),
  table({
    title: 'Tools',
    about:
      'Over the last 5 minutes. The product of the first two columns is the third. A tool leads to its own dashboard.',
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
