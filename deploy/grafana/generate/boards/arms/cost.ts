import { lines, stack } from '../../panels.ts'
import { perSecond, query } from '../../query.ts'
import { AT_SERVER, recorded } from './chosen.ts'

export const cost = [
  lines({
    title: 'Attempts per call',
    about: 'Amplification: what a call costs servers, over all of them. 1 where nothing is sent twice.',
    queries: [recorded('amplification')],
  }),
  stack({
    title: 'Outcomes of attempts',
    about: 'What tools do to each arm, below its policies: in a fair comparison, the same to all.',
    unit: 'reqps',
    queries: [perSecond('breakwater_upstream_attempts_total', AT_SERVER, ['arm', 'outcome'])],
  }),
  stack({
    title: 'Retries',
    about: 'Failed calls that were sent again (`sent`) or not, by why, and calls that were hedged.',
    unit: 'reqps',
    queries: [perSecond('breakwater_retries_total', AT_SERVER, ['arm', 'decision'])],
  }),
  lines({
    title: 'Gates',
    about: 'How many are in each state: an arm has gates of its own.',
    width: 12,
    queries: [query(`sum by (arm, state) (breakwater_gate_state${AT_SERVER})`, '{{arm}} {{state}}')],
  }),
  lines({
    title: 'Calls that wait for a lost server',
    about: 'At the gates of the arm.',
    width: 12,
    queries: [query(`sum by (arm, server) (breakwater_gate_waiting${AT_SERVER})`, '{{arm}} {{server}}')],
  }),
  lines({
    title: 'Breakers',
    about: 'How many are in each state: an arm has breakers of its own.',
    width: 12,
    queries: [query(`sum by (arm, state) (breakwater_breaker_state${AT_SERVER})`, '{{arm}} {{state}}')],
  }),
  lines({
    title: 'Retry budgets',
    about: 'Retries that would be allowed now at a server: an arm has budgets of its own.',
    width: 12,
    queries: [
      query(`min by (arm, server) (breakwater_retry_budget_balance${AT_SERVER})`, '{{arm}} {{server}}'),
    ],
  }),
]
