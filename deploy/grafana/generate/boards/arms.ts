import { board } from '../board.ts'
import { lines, stack, stat } from '../panels.ts'
import { perSecond, query } from '../query.ts'

const CALLS = 'breakwater_tool_calls_total'
const SERVER = '{server=~"$server"}'

/** A share of the calls of each arm; callers' own errors and cancellations belong to nobody's policies. */
function share(results: string): string {
  const rate = (matcher: string) => `sum by (arm) (rate(${CALLS}{server=~"$server",${matcher}}[5m]))`
  const all = rate('result!~"caller_error|cancelled"')
  return `(${rate(`result=~"${results}"`)} or 0 * ${all}) / (${all} > 0)`
}

const intents = [
  stat({
    title: 'Intents',
    about:
      'Tasks per second. Arms that differ from what was configured are a sample ratio mismatch: believe nothing.',
    unit: 'reqps',
    width: 8,
    queries: [perSecond('breakwater_intents_total', '', ['arm'])],
  }),
  stat({
    title: 'Blast radius',
    about: 'Share of tasks that met at least one call that failed.',
    unit: 'percentunit',
    width: 8,
    queries: [query('arm:breakwater_blast_radius:ratio_rate5m', '{{arm}}')],
  }),
  stat({
    title: 'Calls per intent',
    about: 'TCAF: how many tool calls a task makes.',
    width: 8,
    queries: [query('arm:breakwater_tcaf:ratio_rate5m', '{{arm}}')],
  }),
]

const worth = [
  lines({
    title: 'Calls that succeeded',
    about: 'TCSR: share of calls with a result that was checked and found right, over all servers.',
    unit: 'percentunit',
    width: 6,
    queries: [query('arm:breakwater_tcsr:ratio_rate5m', '{{arm}}')],
  }),
  lines({
    title: 'Effective availability',
    about: 'Of calls that were not rejected, over all servers.',
    unit: 'percentunit',
    width: 6,
    queries: [query('arm:breakwater_call_eta:ratio_rate5m', '{{arm}}')],
  }),
  lines({
    title: 'Blast radius',
    about: 'Share of tasks that met at least one call that failed.',
    unit: 'percentunit',
    width: 6,
    queries: [query('arm:breakwater_blast_radius:ratio_rate5m', '{{arm}}')],
  }),
  lines({
    title: 'Tasks that succeeded',
    about: 'Share of tasks of which somebody reported how they ended (POST /admin/outcomes).',
    unit: 'percentunit',
    width: 6,
    queries: [query('1 - arm:breakwater_intent_failure:ratio_rate5m', '{{arm}}')],
  }),
]

const calls = [
  lines({
    title: 'Returned',
    about: 'Share of calls that came back.',
    unit: 'percentunit',
    queries: [query(share('returned'), '{{arm}}')],
  }),
  lines({
    title: 'Rejected',
    about: 'Share of calls that a policy answered in place of a server.',
    unit: 'percentunit',
    queries: [query(share('rejected'), '{{arm}}')],
  }),
  lines({
    title: 'Failed',
    about: 'Share of calls that were sent and went wrong.',
    unit: 'percentunit',
    queries: [query(share('timeout|transport_error|rpc_error'), '{{arm}}')],
  }),
  lines({
    title: 'Calls',
    about: 'Per second.',
    unit: 'reqps',
    queries: [perSecond(CALLS, SERVER, ['arm'])],
  }),
  stack({
    title: 'Results',
    about: 'By arm and result.',
    unit: 'reqps',
    width: 16,
    queries: [perSecond(CALLS, SERVER, ['arm', 'result'])],
  }),
]

export const arms = board({
  uid: 'arms',
  title: 'A/B',
  about:
    'Arms of an experiment side by side. These are pictures: whether a difference is one, the statistics of the experiment say.',
  choices: [{ name: 'server', of: 'breakwater_server_up' }],
  rows: [
    { title: 'Intents', panels: intents },
    { title: 'What agents get', panels: worth },
    { title: 'Calls', panels: calls },
  ],
})
