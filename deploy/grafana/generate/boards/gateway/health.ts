import { none } from '../../colours.ts'
import { lines, stat } from '../../panels.ts'
import { query } from '../../query.ts'
import { ME } from './me.ts'

const quantile = (q: number, metric: string) =>
  `histogram_quantile(${q}, sum by (le) (increase(${metric}_bucket${ME}[$__range])))`

export const health = [
  stat({
    title: 'Open incidents',
    about: 'Servers that are not well. `/admin/incidents?state=open` has the reasons.',
    steps: none,
    queries: [query(`sum(max by (server) (breakwater_incidents_open${ME}))`, 'open')],
  }),
  stat({
    title: 'Incidents by reason',
    about: 'That began within the range, by the reason of their detection.',
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
    about: 'That began within the range.',
    width: 5,
    queries: [
      query(`sum by (server) (increase(breakwater_incidents_total${ME}[$__range])) > 0`, '{{server}}'),
    ],
  }),
  stat({
    title: 'Time to detect',
    about: 'From the first sign to the detection, in half of the incidents and in 95 % of them.',
    unit: 's',
    width: 5,
    queries: [0.5, 0.95].map((q) =>
      query(quantile(q, 'breakwater_incident_detection_duration_seconds'), `p${q * 100}`),
    ),
  }),
  stat({
    title: 'Time to recover',
    about:
      'From the first sign to the first probe that was well, in half of the incidents and in 95 % of them.',
    unit: 's',
    width: 5,
    queries: [0.5, 0.95].map((q) =>
      query(quantile(q, 'breakwater_incident_recovery_duration_seconds'), `p${q * 100}`),
    ),
  }),
  lines({
    title: 'Probes',
    about: 'How long the latest took, at the slowest gateway.',
    unit: 's',
    width: 8,
    queries: [
      query(`max by (server, step) (breakwater_probe_latest_duration_seconds${ME})`, '{{server}} {{step}}'),
    ],
  }),
  lines({
    title: 'Probes against what is usual',
    about:
      'As a multiple of the baseline. By default two probes above 2 are an incident, if that is 100 ms or more.',
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
    about: 'In each step of the graph, by server and why.',
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
    about: '95 % of those that ended well took no longer.',
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
    about:
      'Tries to tell webhooks of incidents, by what became of them. `failed` and `dropped` reached nobody.',
    width: 12,
    queries: [
      query(
        `sum by (webhook, result) (increase(breakwater_notices_total${ME}[$__rate_interval]))`,
        '{{webhook}} {{result}}',
      ),
    ],
  }),
]
