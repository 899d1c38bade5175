import { board } from '../board.ts'
import { none, words } from '../colours.ts'
import { lines, stack, stat } from '../panels.ts'
import { perSecond, query } from '../query.ts'

const FATES = 'breakwater_fault_outcomes_total'

const share = (handled: string) =>
  `(sum(rate(${FATES}{handled="${handled}"}[5m])) or 0 * sum(rate(${FATES}[5m]))) / (sum(rate(${FATES}[5m])) > 0)`

const state = [
  stat({
    title: 'Armed',
    about: 'Whether faults can strike, at any gateway.',
    queries: [query('max(breakwater_chaos_armed)', 'armed')],
  }).mappings(words(['disarmed', 'text'], ['armed', 'red'])),
  stat({
    title: 'Masked',
    about: 'Faults that agents noticed nothing of, because a policy made up for them.',
    unit: 'percentunit',
    queries: [query(share('masked'), 'masked')],
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
    title: 'Defects of the fault engine',
    about: 'Anything but 0 is a bug of Breakwater; the calls went on unharmed.',
    steps: none,
    queries: [query('sum(increase(breakwater_chaos_engine_errors_total[$__range]))', 'errors')],
  }),
]

const faults = [
  stack({
    title: 'Injected',
    about: 'Faults that were done to calls, by name and type.',
    unit: 'reqps',
    width: 12,
    queries: [perSecond('breakwater_faults_injected_total', '', ['fault', 'type'])],
  }),
  stack({
    title: 'What became of them',
    about: 'Masked, surfaced or escaped.',
    unit: 'reqps',
    width: 12,
    queries: [perSecond(FATES, '', ['handled'])],
  }),
  lines({
    title: 'Escaped, by fault',
    about: 'Faults that nobody noticed: a schema, a verdict or a check is missing there.',
    unit: 'reqps',
    width: 12,
    queries: [perSecond(FATES, '{handled="escaped"}', ['fault'])],
  }),
  lines({
    title: 'Masked, by fault',
    about: 'Faults that a policy made up for.',
    unit: 'reqps',
    width: 12,
    queries: [perSecond(FATES, '{handled="masked"}', ['fault'])],
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
