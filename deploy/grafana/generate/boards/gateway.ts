import { board } from '../board.ts'
import { lines, stat } from '../panels.ts'
import { perSecond, quantiles, query } from '../query.ts'

const state = [
  stat({
    title: 'Gateways',
    about: 'Processes that Prometheus reaches.',
    queries: [query('sum(up{job="breakwater"})', 'up')],
  }),
  stat({
    title: 'Servers that are up',
    about: 'Of all that are configured.',
    unit: 'percentunit',
    queries: [query('avg(breakwater_server_up)', 'up')],
  }),
  stat({
    title: 'Tools',
    about: 'That agents are offered.',
    queries: [query('sum(max by (server) (breakwater_server_tools))', 'tools')],
  }),
  stat({
    title: 'Configs in force',
    about: 'More than one for longer than a rollout takes: gateways have drifted apart.',
    queries: [query('count(count by (hash) (breakwater_config_info))', 'configs')],
  }),
  stat({
    title: 'Last reload',
    about: '1: it took effect. 0: it was refused, the old config goes on.',
    queries: [query('min(breakwater_config_reload_success)', 'ok')],
  }),
  stat({
    title: 'Age of the config',
    about: 'Since it was loaded.',
    unit: 's',
    queries: [query('time() - max(breakwater_config_reload_timestamp_seconds)', 'age')],
  }),
]

const cost = [
  lines({
    title: 'Overhead',
    about: 'Time that calls spend in the gateway without waiting for anything.',
    unit: 's',
    queries: quantiles('breakwater_gateway_overhead_seconds'),
  }),
  lines({
    title: 'Event loop',
    about: 'How late timers were, by process. Tens of milliseconds: something blocks.',
    unit: 's',
    queries: [
      query('nodejs_eventloop_lag_p99_seconds{job="breakwater"}', '{{instance}} p99'),
      query('nodejs_eventloop_lag_mean_seconds{job="breakwater"}', '{{instance}} mean'),
    ],
  }),
  lines({
    title: 'CPU',
    about: 'Cores in use.',
    queries: [query('rate(process_cpu_seconds_total{job="breakwater"}[$__rate_interval])', '{{instance}}')],
  }),
  lines({
    title: 'Memory',
    about: 'Resident, and what JavaScript uses of it.',
    unit: 'bytes',
    queries: [
      query('process_resident_memory_bytes{job="breakwater"}', '{{instance}} resident'),
      query('nodejs_heap_size_used_bytes{job="breakwater"}', '{{instance}} heap'),
    ],
  }),
  lines({
    title: 'Sessions',
    about: 'Of agents that speak a protocol with sessions.',
    queries: [query('breakwater_sessions', '{{instance}}')],
  }),
  lines({
    title: 'Under way',
    about: 'Requests to servers.',
    queries: [query('sum by (instance, server) (breakwater_inflight)', '{{instance}} {{server}}')],
  }),
]

const servers = [
  lines({
    title: 'Servers',
    about: '1 while a server answers.',
    queries: [query('min by (server) (breakwater_server_up)', '{{server}}')],
  }),
  lines({
    title: 'Other requests',
    about: 'Lists, prompts, resources, completion, by what became of them.',
    unit: 'reqps',
    queries: [perSecond('breakwater_requests_total', '', ['server', 'result'])],
  }),
  lines({
    title: 'Calls without an intent',
    about: 'Calls that no task could be found for. Blast radius and calls per intent know nothing of them.',
    unit: 'reqps',
    queries: [query('sum(rate(breakwater_intents_unattributed_total[$__rate_interval]))', 'unattributed')],
  }),
  lines({
    title: 'Open intents',
    about: 'Tasks that are not over.',
    queries: [query('breakwater_intents_open', '{{instance}}')],
  }),
  lines({
    title: 'Intents cut short',
    about:
      'Tasks that were taken to be over early, because too many were open: blast radius and calls per intent suffer.',
    unit: 'reqps',
    queries: [query('sum(rate(breakwater_intents_evicted_total[$__rate_interval]))', 'cut short')],
  }),
]

const traces = [
  lines({
    title: 'Spans that arrived',
    about: 'Per second, at the collector of traces.',
    unit: 'cps',
    width: 12,
    queries: [query('sum(rate(breakwater_trace_spans_exported_total[$__rate_interval]))', 'spans')],
  }),
  lines({
    title: 'Spans that were lost',
    about: 'By why: the collector is down or slow. Calls do not suffer from it.',
    unit: 'cps',
    width: 12,
    queries: [perSecond('breakwater_trace_spans_dropped_total', '', ['cause'])],
  }),
]

export const gateway = board({
  uid: 'gateway',
  title: 'Gateway',
  about: 'The gateway itself: what it costs, how it is.',
  rows: [
    { title: 'Now', panels: state },
    { title: 'Cost', panels: cost },
    { title: 'Servers and intents', panels: servers },
    { title: 'Traces', panels: traces },
  ],
})
