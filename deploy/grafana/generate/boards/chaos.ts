import { board } from '../board.ts'
import { none, words } from '../colours.ts'
import { lines, stack, stat } from '../panels.ts'
import { perSecond, query } from '../query.ts'

const FATES = 'breakwater_fault_outcomes_total'

const share = (fate: string) =>
  `(sum(rate(${FATES}{fate="${fate}"}[5m])) or 0 * sum(rate(${FATES}[5m]))) / (sum(rate(${FATES}[5m])) > 0)`

const state = [
  stat({
    title: 'Armed',
    about: 'Whether faults can strike, at any gateway.',
    queries: [query('max(breakwater_chaos_armed)', 'armed')],
  }).mappings(words(['disarmed', 'text'], ['armed', 'red'])),
  stat({
    title: 'Masked',
    about: 'Faults that agents noticed nothing of: answers came, right and in time.',
    unit: 'percentunit',
    queries: [query(share('masked'), 'masked')],
  }),
  stat({
    title: 'Delayed',
    about: 'Faults that agents had to wait for: the answer was right, and late.',
    unit: 'percentunit',
    queries: [query(share('delayed'), 'delayed')],
  }),
  stat({
    title: 'Surfaced',
    about: 'Faults that reached the agent as an error or a flag: it could react.',
    unit: 'percentunit',
    queries: [query(share('surfaced'), 'surfaced')],
  }),
  stat({
    title: 'Escaped',
    about: 'Faults that reached the agent as an answer that looked right. This is the number to bring to 0.',
    unit: 'percentunit',
    steps: none,
    queries: [query(share('escaped'), 'escaped')],
  }),
  stat({
    title: 'Defects of the fault engine, and of its journal',
    about:
      'Errors are bugs of Breakwater; entries are lost where the disk of the journal refuses. The calls went on unharmed.',
    steps: none,
    queries: [
      query('sum(increase(breakwater_chaos_engine_errors_total[$__range]))', 'errors'),
      query('sum(increase(breakwater_chaos_journal_dropped_total[$__range]))', 'lost entries'),
    ],
  }),
]

const faults = [
  stack({
    title: 'Injected',
    about: 'Faults that were injected into calls of agents, by name and type.',
    unit: 'reqps',
    width: 12,
    queries: [perSecond('breakwater_faults_injected_total', '', ['fault', 'type'])],
  }),
  stack({
    title: 'What became of them',
    about:
      'Masked, delayed, surfaced, escaped, or not reached: the call was over before. The sum is what was injected.',
    unit: 'reqps',
    width: 12,
    queries: [perSecond(FATES, '', ['fate'])],
  }),
  lines({
    title: 'Escaped, by fault',
    about: 'Faults that nobody noticed: a schema, a verdict or a check is missing there.',
    unit: 'reqps',
    width: 12,
    queries: [perSecond(FATES, '{fate="escaped"}', ['fault'])],
  }),
  lines({
    title: 'Masked, by fault',
    about: 'Faults that a policy made up for.',
    unit: 'reqps',
    width: 12,
    queries: [perSecond(FATES, '{fate="masked"}', ['fault'])],
  }),
  lines({
    title: 'Delay, by fault',
    about: 'How long an agent had to wait on average for an answer that a fault delayed.',
    unit: 's',
    width: 12,
    queries: [
      query(
        `sum by (fault) (rate(breakwater_fault_delay_seconds_total[$__rate_interval])) / (sum by (fault) (rate(${FATES}{fate="delayed"}[$__rate_interval])) > 0)`,
        '{{fault}}',
      ),
    ],
  }),
  stack({
    title: 'What the mesh did about them',
    about:
      'Tries sent again after one that was hit, and calls that a breaker kept from a server that was hit.',
    unit: 'reqps',
    width: 12,
    queries: [perSecond('breakwater_fault_reactions_total', '', ['fault', 'reaction'])],
  }),
  stack({
    title: 'Injected into questions of the gateway',
    about: 'Faults in the lists that the gateway fetches by itself; no agent waits for these.',
    unit: 'reqps',
    width: 12,
    queries: [perSecond('breakwater_discovery_faults_injected_total', '', ['fault', 'type'])],
  }),
  lines({
    title: 'Kept and served again',
    about: 'Later calls that got a corrupted reply, looking fine, because it had been kept.',
    unit: 'reqps',
    width: 12,
    queries: [perSecond('breakwater_fault_replies_kept_total', '', ['fault'])],
  }),
]

const effect = [
  lines({
    title: 'What tools are worth meanwhile',
    about: 'Effective availability of attempts: faults below the policies show up here.',
    unit: 'percentunit',
    queries: [query('server:breakwater_eta:ratio_rate5m', '{{server}}')],
  }),
  lines({
    title: 'What agents get',
    about:
      'Effective availability of calls: the distance to the panel on the left is what the policies are worth.',
    unit: 'percentunit',
    queries: [query('server:breakwater_call_eta:ratio_rate5m', '{{server}}')],
  }),
  stack({
    title: 'Results of calls',
    about: 'As agents see it.',
    unit: 'reqps',
    queries: [perSecond('breakwater_tool_calls_total', '', ['result'])],
  }),
]

export const chaos = board({
  uid: 'chaos',
  title: 'Chaos',
  about:
    'Faults on purpose: what was done, and whether anybody noticed. Marks show when they were armed and disarmed.',
  rows: [
    { title: 'Now', panels: state },
    { title: 'Faults', panels: faults },
    { title: 'Effect', panels: effect },
  ],
})
