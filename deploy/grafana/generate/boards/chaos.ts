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
    about: '`armed` if any gateway can inject faults.',
    queries: [query('max(breakwater_chaos_armed)', 'armed')],
  }).mappings(words(['disarmed', 'text'], ['armed', 'red'])),
  stat({
    title: 'Masked',
    about: 'Faults unnoticed by agents: the answer was right and in time.',
    unit: 'percentunit',
    queries: [query(share('masked'), 'masked')],
  }),
  stat({
    title: 'Delayed',
    about: 'Faults that delayed agents: the answer was right, but late.',
    unit: 'percentunit',
    queries: [query(share('delayed'), 'delayed')],
  }),
  stat({
    title: 'Surfaced',
    about: 'Faults that reached the agent as an error or a flag: the agent could react.',
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
      'Errors are bugs in Breakwater; entries are lost if the journal’s disk refuses. No call failed because of these defects.',
    steps: none,
    queries: [
      query('sum(increase(breakwater_chaos_engine_errors_total[$__range]))', 'errors'),
      query('sum(increase(breakwater_chaos_journal_dropped_total[$__range]))', 'lost entries'),
    ],
  }),
]

const faults = [
  stack({
    title: 'Injected faults',
    about: 'Faults that were injected into calls of agents, by name and type.',
    unit: 'reqps',
    width: 12,
    queries: [perSecond('breakwater_faults_injected_total', '', ['fault', 'type'])],
  }),
  stack({
    title: 'Fates of injected faults',
    about:
      'Masked, delayed, surfaced, escaped, or not reached (the call ended before). The sum is the number of injections.',
    unit: 'reqps',
    width: 12,
    queries: [perSecond(FATES, '', ['fate'])],
  }),
  lines({
    title: 'Escaped, by fault',
    about: 'Unnoticed wrong answers: a schema, a verdict or a check is missing there.',
    unit: 'reqps',
    width: 12,
    queries: [perSecond(FATES, '{fate="escaped"}', ['fault'])],
  }),
  lines({
    title: 'Masked, by fault',
    about: 'Faults hidden by a policy.',
    unit: 'reqps',
    width: 12,
    queries: [perSecond(FATES, '{fate="masked"}', ['fault'])],
  }),
  lines({
    title: 'Delay, by fault',
    about: 'Mean extra wait of agents for delayed answers.',
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
    title: 'Reactions to injected faults',
    about: 'Retries after an attempt with a fault, and calls that a breaker kept from a server with faults.',
    unit: 'reqps',
    width: 12,
    queries: [perSecond('breakwater_fault_reactions_total', '', ['fault', 'reaction'])],
  }),
  stack({
    title: 'Faults injected into the gateway’s own requests',
    about: 'Faults in lists that the gateway fetches by itself; no agent waits for such lists.',
    unit: 'reqps',
    width: 12,
    queries: [perSecond('breakwater_discovery_faults_injected_total', '', ['fault', 'type'])],
  }),
  lines({
    title: 'Corrupted replies served from a cache',
    about: 'Later calls with a corrupted reply from a cache, without a sign of corruption.',
    unit: 'reqps',
    width: 12,
    queries: [perSecond('breakwater_fault_replies_kept_total', '', ['fault'])],
  }),
]

const effect = [
  lines({
    title: 'Effective availability of attempts',
    about: 'Quality of servers before retries and fallbacks: injected faults lower this share.',
    unit: 'percentunit',
    queries: [query('server:breakwater_eta:ratio_rate5m', '{{server}}')],
  }),
  lines({
    title: 'Effective availability of calls',
    about: 'Quality for agents: the distance to the panel on the left is the effect of the policies.',
    unit: 'percentunit',
    queries: [query('server:breakwater_call_eta:ratio_rate5m', '{{server}}')],
  }),
  stack({
    title: 'Results of calls',
    about: 'Results as agents see them, after retries and fallbacks.',
    unit: 'reqps',
    queries: [perSecond('breakwater_tool_calls_total', '', ['result'])],
  }),
]

export const chaos = board({
  uid: 'chaos',
  title: 'Chaos',
  about: 'Injected faults, and whether agents noticed. Marks show when faults were armed and disarmed.',
  rows: [
    { title: 'Now', panels: state },
    { title: 'Faults', panels: faults },
    { title: 'Effect', panels: effect },
  ],
})
