import { none } from '../../colours.ts'
import { lines, stat } from '../../panels.ts'
import { query } from '../../query.ts'
import { ME } from './me.ts'

const quantile = (q: number, metric: string) =>
  `histogram_quantile(${q}, sum by (le) (increase(${metric}_bucket${ME}[$__range])))`

export const health = [
  stat({
    title: 'Open incidents',
    about: 'Unhealthy servers. `/admin/incidents?state=open` shows the reasons.',
    steps: none,
    queries: [query(`sum(max by (server) (breakwater_incidents_open${ME}))`, 'open')],
  }),
  stat({
    title: 'Incidents by reason',
    about: 'Incidents that began within the range, by the reason of detection.',
    width: 5,
    queries: [
      query(
        `sum by (reason) (increase(breakwater_incident_detection_duration_seconds_count${ME}[$__range])) > 0`,
        '{{reason}}',
      ),
    ],
  }),
  stat({
    title: 'Incidents by server',
    about: 'Incidents that began within the range.',
    width: 5,
    queries: [
      query(`sum by (server) (increase(breakwater_incidents_total${ME}[$__range])) > 0`, '{{server}}'),
    ],
  }),
  stat({
    title: 'Time to detect',
    about: 'From the first sign to the detection: median and 95th percentile of incidents.',
    unit: 's',
    width: 5,
    queries: [0.5, 0.95].map((q) =>
      query(quantile(q, 'breakwater_incident_detection_duration_seconds'), `p${q * 100}`),
    ),
  }),
  stat({
    title: 'Time to recover',
    about: 'From the first sign to the first good probe: median and 95th percentile of incidents.',
    unit: 's',
    width: 5,
    queries: [0.5, 0.95].map((q) =>
      query(quantile(q, 'breakwater_incident_recovery_duration_seconds'), `p${q * 100}`),
    ),
  }),
  lines({
    title: 'Probes',
    about: 'Duration of the latest probe, at the slowest gateway.',
    unit: 's',
    width: 8,
    queries: [
      query(`max by (server, step) (breakwater_probe_latest_duration_seconds${ME})`, '{{server}} {{step}}'),
    ],
  }),
  lines({
    title: 'Probe durations relative to the baseline',
    about:
      'Durations as a multiple of the baseline. By default two probes above 2 and at least 100 ms slower are an incident.',
    width: 8,
    queries: [
      query(
        `max by (server, step) (breakwater_probe_latest_duration_seconds${ME} / breakwater_probe_baseline_duration_seconds${ME})`,
        '{{server}} {{step}}',
      ),
    ],
  }),
  lines({
    title: 'Probes that failed',
    about: 'Failed probes in each step of the graph, by server and reason.',
    width: 8,
    queries: [
      query(
        `sum by (server, reason) (increase(breakwater_probe_failures_total${ME}[$__rate_interval]))`,
        '{{server}} {{reason}}',
      ),
    ],
  }),
  lines({
    title: 'Steps of probes',
    about: '95th percentile of good steps.',
    unit: 's',
    width: 12,
    queries: [
      query(
        `histogram_quantile(0.95, sum by (le, step) (rate(breakwater_probe_duration_seconds_bucket${ME}[$__rate_interval])))`,
        '{{step}}',
      ),
    ],
  }),
  lines({
    title: 'Notices',
    about: 'Notices of incidents to webhooks, by result. `failed` and `dropped` reached nobody.',
    width: 12,
    queries: [
      query(
        `sum by (webhook, result) (increase(breakwater_notices_total${ME}[$__rate_interval]))`,
        '{{webhook}} {{result}}',
      ),
    ],
  }),
]
