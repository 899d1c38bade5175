import { board } from '../board.ts'
import { dashed, pages, thresholds } from '../colours.ts'
import { lines, stack } from '../panels.ts'
import { perSecond, quantiles, query, traced } from '../query.ts'

const TOOL = '{server=~"$server",tool=~"$tool"}'
const SERVER = '{server=~"$server"}'

const ratio = (measure: string, legend: string) =>
  query(`server_tool:breakwater_${measure}:ratio_rate5m${TOOL}`, `{{tool}} ${legend}`)

const worth = [
  lines({
    title: 'Attempts: availability × correctness',
    about: 'Quality of the tool itself, before any retry.',
    unit: 'percentunit',
    width: 12,
    queries: [
      ratio('availability', 'availability'),
      ratio('correctness', 'correctness'),
      ratio('eta', 'effective'),
      ratio('unchecked', 'not checked'),
    ],
  }),
  lines({
    title: 'Calls: availability × correctness',
    about: 'Quality for agents, after retries and hedges. TCSR also counts rejected calls.',
    unit: 'percentunit',
    width: 12,
    queries: [
      ratio('call_availability', 'availability'),
      ratio('call_correctness', 'correctness'),
      ratio('call_eta', 'effective'),
      ratio('call_unchecked', 'not checked'),
      ratio('tcsr', 'TCSR'),
    ],
  }),
]

const attempts = [
  stack({
    title: 'Outcomes of attempts',
    about: 'Attempts with a reply (`returned`), and attempts without a reply by cause.',
    unit: 'reqps',
    queries: [perSecond('breakwater_upstream_attempts_total', TOOL, ['outcome'])],
  }),
  stack({
    title: 'Verdicts on replies',
    about:
      'Quality of replies. `unchecked` could not be judged, `drift` has a new shape: neither counts against the tool.',
    unit: 'reqps',
    queries: [
      perSecond(
        'breakwater_upstream_attempts_total',
        '{server=~"$server",tool=~"$tool",outcome="returned"}',
        ['verdict'],
      ),
    ],
  }),
  lines({
    title: 'Burn rate',
    about:
      'How many times faster than allowed the error budget is spent. Pages at 14.4 over an hour and at 6 over six hours.',
    queries: ['1h', '6h', '3d'].map((window) =>
      query(`server_tool:breakwater_eta_burn:rate${window}${TOOL}`, `{{tool}} ${window}`),
    ),
  })
    .thresholds(thresholds(pages))
    .thresholdsStyle(dashed),
]

const calls = [
  stack({
    title: 'Results of calls',
    about: 'Results as agents see them, after retries and fallbacks.',
    unit: 'reqps',
    queries: [perSecond('breakwater_tool_calls_total', TOOL, ['result'])],
  }),
  lines({
    title: 'Duration',
    about:
      'From the arrival of a call to its outcome. Dots are traces: follow one from a bad minute to a bad call.',
    unit: 's',
    queries: traced(quantiles('breakwater_tool_call_duration_seconds', TOOL, ['tool'])),
  }),
  lines({
    title: 'Arguments that break the schema',
    about: "Calls whose arguments do not fit the tool's inputSchema: the model's mistakes, not the tool's.",
    unit: 'reqps',
    queries: [perSecond('breakwater_invalid_arguments_total', TOOL, ['tool'])],
  }),
]

const guards = [
  lines({
    title: 'Gate of its server',
    about: '1 for the current state of the gate; more if arms of an experiment have separate gates.',
    width: 8,
    queries: [query(`sum by (server, state) (breakwater_gate_state${SERVER})`, '{{server}} {{state}}')],
  }),
  lines({
    title: 'Breaker',
    about: '1 for the current state of the breaker; more if arms of an experiment have separate breakers.',
    width: 8,
    queries: [query(`sum by (tool, state) (breakwater_breaker_state${TOOL})`, '{{tool}} {{state}}')],
  }),
  lines({
    title: 'Rejections of the server',
    about: 'Calls to any tool of the server that a policy answered in place of the server.',
    unit: 'reqps',
    width: 8,
    queries: [perSecond('breakwater_rejections_total', SERVER, ['reason'])],
  }),
]

export const tool = board({
  uid: 'tool',
  title: 'Tool',
  about: 'One tool in depth: its own quality, and its quality for agents.',
  choices: [
    { name: 'server', of: 'breakwater_tool_calls_total', one: true },
    { name: 'tool', of: 'breakwater_tool_calls_total{server=~"$server"}' },
  ],
  rows: [
    { title: 'Quality of the tool', panels: worth },
    { title: 'Attempts', panels: attempts },
    { title: 'Calls', panels: calls },
    { title: 'Guards', panels: guards },
  ],
})
