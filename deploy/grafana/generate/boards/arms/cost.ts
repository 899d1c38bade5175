import { lines, stack } from '../../panels.ts'
import { perSecond, query } from '../../query.ts'
import { AT_SERVER, recorded } from './chosen.ts'

export const cost = [
  lines({
    title: 'Attempts per call',
    about: 'Amplification: attempts that a call costs, over all servers. 1 without retries and hedges.',
    queries: [recorded('amplification')],
  }),
  stack({
    title: 'Outcomes of attempts',
    about: 'Outcomes below the policies of each arm: in a fair comparison, the same for all arms.',
    unit: 'reqps',
    queries: [perSecond('breakwater_upstream_attempts_total', AT_SERVER, ['arm', 'outcome'])],
  }),
  stack({
    title: 'Retries',
    about: 'Failed calls that were retried (`sent`) or not, by reason, and hedged calls.',
    unit: 'reqps',
    queries: [perSecond('breakwater_retries_total', AT_SERVER, ['arm', 'decision'])],
  }),
  lines({
    title: 'Gates',
    about: 'Number of gates in each state: each arm has separate gates.',
    width: 12,
    queries: [query(`sum by (arm, state) (breakwater_gate_state${AT_SERVER})`, '{{arm}} {{state}}')],
  }),
  lines({
    title: 'Calls that wait for a lost server',
    about: 'Calls at the gates of the arm.',
    width: 12,
    queries: [query(`sum by (arm, server) (breakwater_gate_waiting${AT_SERVER})`, '{{arm}} {{server}}')],
  }),
  lines({
    title: 'Breakers',
    about: 'Number of breakers in each state: each arm has separate breakers.',
    width: 12,
    queries: [query(`sum by (arm, state) (breakwater_breaker_state${AT_SERVER})`, '{{arm}} {{state}}')],
  }),
  lines({
    title: 'Retry budgets',
    about: 'Retries allowed now at a server: each arm has separate budgets.',
    width: 12,
    queries: [
      query(`min by (arm, server) (breakwater_retry_budget_balance${AT_SERVER})`, '{{arm}} {{server}}'),
    ],
  }),
]
