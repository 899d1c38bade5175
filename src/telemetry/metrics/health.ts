import { counter, gauge, histogram } from '../../mesh/metric-spec.ts'

const PROBE_SECONDS = [0.001, 0.005, 0.01, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10]
const INCIDENT_SECONDS = [1, 5, 15, 30, 60, 90, 120, 300, 600, 1_800, 3_600, 14_400]

/** The part of the table that is about probes and incidents. */
export const health = {
  probeDuration: histogram(
    'probe_duration_seconds',
    'How long steps of probes took that ended well: opening a session, a ping, the lists, the call of a tool.',
    ['step'],
    '4 steps × 13',
    PROBE_SECONDS,
  ),
  probeFailures: counter(
    'probe_failures_total',
    'Probes that found a server not to be well, by why.',
    ['server', 'reason'],
    'servers × 10 reasons',
  ),
  probeLatency: gauge(
    'probe_latest_duration_seconds',
    'How long a step of the latest probe that had it took.',
    ['server', 'step'],
    'servers × 3 steps',
  ),
  probeBaseline: gauge(
    'probe_baseline_duration_seconds',
    'How long a step of a probe usually takes: the median of those that were not slow, once there are five.',
    ['server', 'step'],
    'servers × 3 steps',
  ),
  incidentsOpen: gauge(
    'incidents_open',
    '1 while a server has an open incident, else 0.',
    ['server'],
    'servers',
  ),
  incidents: counter(
    'incidents_total',
    'Incidents that began; the count of `incident_detection_duration_seconds` has them by reason.',
    ['server'],
    'servers',
  ),
  timeToDetect: histogram(
    'incident_detection_duration_seconds',
    'From the last probe that was well to the detection of an incident; where a call or a session gave the first sign, from that.',
    ['reason'],
    '10 reasons × 14',
    INCIDENT_SECONDS,
  ),
  timeToRecover: histogram(
    'incident_recovery_duration_seconds',
    'From the first sign of an incident to the first probe that was well; of those that a gateway has watched all the time.',
    ['reason'],
    '10 reasons × 14',
    INCIDENT_SECONDS,
  ),
  notices: counter(
    'notices_total',
    'Tries to tell a webhook of an incident, by what became of them: delivered, retried, failed, or dropped without a try.',
    ['webhook', 'result'],
    '16 webhooks × 4 results',
  ),
} as const
