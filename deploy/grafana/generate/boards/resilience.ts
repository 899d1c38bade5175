import { board } from '../board.ts'
import { lines, stack } from '../panels.ts'
import { perSecond, query } from '../query.ts'

const SERVER = '{server=~"$server"}'
const REFUSED = '{server=~"$server",decision!~"sent|hedged"}'

const gates = [
  lines({
    title: 'Gates that are not closed',
    about:
      'By server, including gates of arms. Open: the server is lost, and calls wait. Half open: the server is back, and calls go singly at first.',
    queries: [
      query(
        `sum by (server, state) (breakwater_gate_state{server=~"$server",state!="closed"})`,
        '{{server}} {{state}}',
      ),
    ],
  }),
  lines({
    title: 'Calls that wait for a lost server',
    about: 'Calls at the gate of a server, until the server is back or the wait of the call is over.',
    queries: [query(`sum by (server) (breakwater_gate_waiting${SERVER})`, '{{server}}')],
  }),
  lines({
    title: 'Losses and returns',
    about: 'Servers that were lost (open) or are back (closed).',
    unit: 'reqps',
    queries: [perSecond('breakwater_gate_transitions_total', SERVER, ['server', 'state'])],
  }),
]

const breakers = [
  lines({
    title: 'Breakers that are not closed',
    about: 'By tool, including breakers of arms. Open: calls are rejected. Half open: some calls are probes.',
    queries: [
      query(
        `sum by (server, tool, state) (breakwater_breaker_state{server=~"$server",state!="closed"})`,
        '{{server}}/{{tool}} {{state}}',
      ),
    ],
  }),
  lines({
    title: 'Transitions',
    about: 'Changes of state, by cause.',
    unit: 'reqps',
    queries: [perSecond('breakwater_breaker_transitions_total', SERVER, ['dimension', 'state'])],
  }),
  lines({
    title: 'Changes of state in policies',
    about: 'Gates, breakers, ejected replicas, drifting shapes and the like.',
    unit: 'reqps',
    queries: [perSecond('breakwater_policy_events_total', SERVER, ['type'])],
  }),
]

const retries = [
  lines({
    title: 'Attempts per call',
    about:
      'Amplification: attempts that a call costs its server. 1 without retries; the budget keeps the figure below 1.5 in an outage at 20 calls a second or more.',
    queries: [query(`server:breakwater_amplification:ratio_rate5m${SERVER}`, '{{server}}')],
  }),
  stack({
    title: 'Retries, sent and hedged',
    about: 'Calls that went out a second time.',
    unit: 'reqps',
    queries: [
      perSecond('breakwater_retries_total', '{server=~"$server",decision=~"sent|hedged"}', [
        'server',
        'decision',
      ]),
    ],
  }),
  stack({
    title: 'Retries that were refused',
    about:
      'Failed calls that were not retried, by reason. Budgets here mean that a retry storm was prevented.',
    unit: 'reqps',
    queries: [perSecond('breakwater_retries_total', REFUSED, ['server', 'decision'])],
  }),
  lines({
    title: 'Retry budgets',
    about:
      'Retries allowed now; the line without a name is the budget of the gateway. Arms of experiments have separate budgets: see A/B.',
    queries: [query('min by (server) (breakwater_retry_budget_balance{arm=""})', '{{server}}')],
  }),
  lines({
    title: 'Lost sessions that were opened again',
    about: 'Calls to servers that had lost the session.',
    unit: 'reqps',
    queries: [perSecond('breakwater_session_recoveries_total', SERVER, ['server'])],
  }),
  lines({
    title: 'Lost notifications and withheld requests',
    about:
      'Notifications of agents that a server refused, by reason. Withheld: questions of a shared server that no agent got, because an agent has an open task or a cancelled call.',
    unit: 'cps',
    queries: [
      perSecond('breakwater_notifications_lost_total', SERVER, ['server', 'reason']),
      query(
        `sum by (server) (rate(breakwater_server_requests_withheld_total${SERVER}[$__rate_interval]))`,
        '{{server}} withheld',
      ),
    ],
  }),
  lines({
    title: 'Answers repeated for idempotency keys',
    about: 'Calls with an idempotency key of an earlier or running call.',
    unit: 'reqps',
    queries: [perSecond('breakwater_idempotent_replays_total', SERVER, ['server', 'how'])],
  }),
]

const limits = [
  stack({
    title: 'Rejections',
    about: 'Calls that a policy answered in place of a server: full bulkheads, open breakers, limits.',
    unit: 'reqps',
    queries: [perSecond('breakwater_rejections_total', SERVER, ['reason'])],
  }),
  lines({
    title: 'Requests in flight',
    about: 'Requests in flight; compare with `bulkhead.concurrent`.',
    queries: [query(`sum by (server) (breakwater_inflight${SERVER})`, '{{server}}')],
  }),
  stack({
    title: 'Partial answers',
    about: 'Results with missing parts: declared, detected, stale, or from a fallback.',
    unit: 'reqps',
    queries: [perSecond('breakwater_partial_results_total', SERVER, ['source'])],
  }),
]

const deadlines = [
  lines({
    title: 'Deadlines that could not be met',
    about: 'Estimated before the call was sent; `route.feasibility` decides about such calls.',
    unit: 'reqps',
    width: 12,
    queries: [perSecond('breakwater_deadlines_infeasible_total', SERVER, ['server'])],
  }),
  lines({
    title: 'Timeouts',
    about: 'Calls ended by their deadline, and attempts ended by a timeout.',
    unit: 'reqps',
    width: 12,
    queries: [
      query(
        'sum by (server) (rate(breakwater_tool_calls_total{server=~"$server",result="timeout"}[$__rate_interval]))',
        '{{server}} calls',
      ),
      query(
        'sum by (server) (rate(breakwater_upstream_attempts_total{server=~"$server",outcome="timeout"}[$__rate_interval]))',
        '{{server}} attempts',
      ),
    ],
  }),
]

export const resilience = board({
  uid: 'resilience',
  title: 'Resilience',
  about: 'Policies at work: gates, breakers, retry budgets, limits, deadlines.',
  choices: [{ name: 'server', of: 'breakwater_server_up' }],
  rows: [
    { title: 'Gates', panels: gates },
    { title: 'Breakers', panels: breakers },
    { title: 'Retries', panels: retries },
    { title: 'Limits', panels: limits },
    { title: 'Deadlines', panels: deadlines },
  ],
})
