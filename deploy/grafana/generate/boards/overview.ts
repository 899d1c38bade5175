import { board } from '../board.ts'
import { lines, stack, stat, table } from '../panels.ts'
import { perSecond, quantiles, query } from '../query.ts'

const SERVER = '{server=~"$server"}'
const TOOLS = 'breakwater_tool_calls_total'

/** The one ratio over all servers that are chosen: never an average of averages. */
const overall = (part: string, whole: string) =>
  `sum(server:breakwater_attempts_${part}:rate5m${SERVER}) / (sum(server:breakwater_attempts_${whole}:rate5m${SERVER}) > 0)`

const summary = [
  stat({
    title: 'Effective tool availability',
    about:
      'Attempts that came back and were checked and found right. Availability × correctness, over 5 minutes.',
    unit: 'percentunit',
    queries: [query(overall('good', 'eligible'), 'ETA')],
  }),
  stat({
    title: 'Availability',
    about: 'Attempts that came back at all.',
    unit: 'percentunit',
    queries: [query(overall('returned', 'eligible'), 'availability')],
  }),
  stat({
    title: 'Correctness',
    about: 'Replies that were checked and found right.',
    unit: 'percentunit',
    queries: [query(overall('good', 'returned'), 'correctness')],
  }),
  stat({
    title: 'Replies nobody could check',
    about:
      'Share of replies without an output schema or a known shape. They are not counted as correct, so a high share is why ' +
      'effective availability is low although nothing is wrong.',
    unit: 'percentunit',
    queries: [query(overall('undecided', 'returned'), 'undecided')],
  }),
  stat({
    title: 'Calls per intent',
    about: 'TCAF: how many tool calls a task of an agent makes.',
    queries: [query('gateway:breakwater_tcaf:ratio_rate5m', 'TCAF')],
  }),
  stat({
    title: 'Blast radius',
    about: 'Share of tasks that met at least one call that failed.',
    unit: 'percentunit',
    queries: [query('gateway:breakwater_blast_radius:ratio_rate5m', 'blast radius')],
  }),
]

const tools = (measure: string, legend: string) =>
  query(`server_tool:breakwater_${measure}:ratio_rate5m${SERVER}`, legend)

const perTool = [
  lines({
    title: 'Effective availability by server',
    about: 'Availability × correctness.',
    unit: 'percentunit',
    queries: [query(`server:breakwater_eta:ratio_rate5m${SERVER}`, '{{server}}')],
  }),
  lines({
    title: 'Availability by server',
    about: 'The first factor: did anything come back?',
    unit: 'percentunit',
    queries: [query(`server:breakwater_availability:ratio_rate5m${SERVER}`, '{{server}}')],
  }),
  lines({
    title: 'Correctness by server',
    about: 'The second factor: was it checked, and right?',
    unit: 'percentunit',
    queries: [query(`server:breakwater_correctness:ratio_rate5m${SERVER}`, '{{server}}')],
  }),
  table({
    title: 'Tools',
    about: 'Over the last 5 minutes. The product of the first two columns is the third.',
    unit: 'percentunit',
    queries: [
      tools('availability', 'availability'),
      tools('correctness', 'correctness'),
      tools('eta', 'effective availability'),
      tools('undecided', 'not checked'),
      tools('tcsr', 'calls that succeeded (TCSR)'),
    ],
  }),
]

const calls = [
  lines({
    title: 'Calls',
    about: 'Tool calls of agents per second.',
    unit: 'reqps',
    queries: [perSecond(TOOLS, SERVER, ['server'])],
  }),
  stack({
    title: 'What became of them',
    about: 'As agents see it: after retries, fallbacks and rejections.',
    unit: 'reqps',
    queries: [perSecond(TOOLS, SERVER, ['result'])],
  }),
  lines({
    title: 'Duration',
    about: 'From the arrival of a call to its outcome. Dots are traces.',
    unit: 's',
    queries: quantiles('breakwater_tool_call_duration_seconds', SERVER),
  }),
]

const budget = [
  lines({
    title: 'Error budget left',
    about: 'Of what the last three days may spend, by server. Below 0 the objective is missed.',
    unit: 'percentunit',
    width: 12,
    queries: [query(`1 - server:breakwater_eta_burn:rate3d${SERVER}`, '{{server}}')],
  }).min(-1),
  lines({
    title: 'Burn rate',
    about:
      'How many times faster than allowed the error budget is spent. Pages at 14.4 for an hour, 6 for six hours.',
    width: 12,
    queries: ['1h', '6h', '3d'].map((window) =>
      query(`server:breakwater_eta_burn:rate${window}${SERVER}`, `{{server}} ${window}`),
    ),
  }),
]

const tasks = [
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

export const overview = board({
  uid: 'overview',
  title: 'Overview',
  about: 'How good tools are: what comes back, and what of that is right.',
  choices: [{ name: 'server', of: 'breakwater_server_up' }],
  rows: [
    { title: 'Now', panels: summary },
    { title: 'Availability × correctness', panels: perTool },
    { title: 'Calls', panels: calls },
    { title: 'Tasks', panels: tasks },
    { title: 'Error budget', panels: budget },
  ],
})
