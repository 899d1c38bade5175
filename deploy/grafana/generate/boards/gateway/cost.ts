import { lines } from '../../panels.ts'
import { quantiles, query } from '../../query.ts'
import { ME } from './me.ts'

export const cost = [
  lines({
    title: 'Overhead',
    about: 'Time that calls spend in the gateway without waiting for anything.',
    unit: 's',
    queries: quantiles('breakwater_gateway_overhead_seconds', ME),
  }),
  lines({
    title: 'Event loop',
    about: 'Delay of timers, by process. Tens of milliseconds mean that something blocks.',
    unit: 's',
    queries: [
      query(`nodejs_eventloop_lag_p99_seconds${ME}`, '{{instance}} p99'),
      query(`nodejs_eventloop_lag_mean_seconds${ME}`, '{{instance}} mean'),
    ],
  }),
  lines({
    title: 'CPU',
    about: 'Cores in use.',
    queries: [query(`rate(process_cpu_seconds_total${ME}[$__rate_interval])`, '{{instance}}')],
  }),
  lines({
    title: 'Memory',
    about: 'Resident memory, and its part used by JavaScript.',
    unit: 'bytes',
    queries: [
      query(`process_resident_memory_bytes${ME}`, '{{instance}} resident'),
      query(`nodejs_heap_size_used_bytes${ME}`, '{{instance}} heap'),
    ],
  }),
  lines({
    title: 'Sessions',
    about: 'Open sessions of agents with a session-based protocol.',
    queries: [query(`breakwater_sessions${ME}`, '{{instance}}')],
  }),
  lines({
    title: 'Requests in flight',
    about: 'Requests to servers.',
    queries: [query(`sum by (instance, server) (breakwater_inflight${ME})`, '{{instance}} {{server}}')],
  }),
  lines({
    title: 'Garbage collection',
    about: 'Share of time that JavaScript was paused.',
    unit: 'percentunit',
    width: 12,
    queries: [
      query(
        `sum by (instance) (rate(nodejs_gc_duration_seconds_sum${ME}[$__rate_interval]))`,
        '{{instance}}',
      ),
    ],
  }),
  lines({
    title: 'Open files and connections',
    about:
      'By process. A count that only grows is a leak; at the limit of the system new files and connections fail.',
    width: 12,
    queries: [query(`process_open_fds${ME}`, '{{instance}}')],
  }),
]
