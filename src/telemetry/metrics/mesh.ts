import { counter, gauge, histogram } from '../../mesh/metric-spec.ts'

/** The metrics about policies and faults. */
export const mesh = {
  rejections: counter(
    'rejections_total',
    'Calls, and retries and hedges of them, that a policy kept from their server, by why.',
    ['server', 'reason', 'arm'],
    'servers × reasons of policies × arms',
  ),
  partials: counter(
    'partial_results_total',
    'Results of which something is missing, by who found out.',
    ['server', 'source', 'arm'],
    'servers × 5 sources × arms',
  ),
  meshEvents: counter(
    'policy_events_total',
    'Changes of state in policies, by type.',
    ['server', 'type', 'arm'],
    'servers × types of events × arms',
  ),
  faultsInjected: counter(
    'faults_injected_total',
    'Faults that were injected into calls of agents, counted with their fates when these calls end. The first 2,000 names of faults have series of their own, all others count as `_other`.',
    ['fault', 'type', 'arm'],
    'faults that were in force, 2,001 at most × arms',
  ),
  discoveryFaults: counter(
    'discovery_faults_injected_total',
    'Faults that were injected into what the gateway asks servers by itself, such as their lists, counted when these questions end.',
    ['fault', 'type'],
    'faults that were in force, 2,001 at most',
  ),
  faultOutcomes: counter(
    'fault_outcomes_total',
    'What became of faults injected into calls of agents: masked, delayed, surfaced as an error or a flag, escaped to the agent unnoticed, or not_reached. Their sum is that of the faults injected.',
    ['fault', 'fate', 'arm'],
    'faults that were in force, 2,001 at most × 5 × arms',
  ),
  faultDelay: counter(
    'fault_delay_seconds_total',
    'How long agents had to wait for good answers because of faults; those that were `delayed`.',
    ['fault', 'arm'],
    'faults that were in force, 2,001 at most × arms',
  ),
  faultReactions: counter(
    'fault_reactions_total',
    'What the mesh did about faults: calls sent again after one that was hit (`resent`), and rejected because a breaker was open at a server that was hit (`rejected`).',
    ['fault', 'reaction', 'arm'],
    'faults that were in force, 2,001 at most × 2 × arms',
  ),
  faultsKept: counter(
    'fault_replies_kept_total',
    'Later calls that a corrupted reply reached, looking fine: it had been kept.',
    ['fault', 'arm'],
    'faults that were in force, 2,001 at most × arms',
  ),
  experimentRunning: gauge(
    'experiment_running',
    '1 while an experiment runs, else 0.',
    ['experiment'],
    'experiments',
  ),
  experimentUnits: gauge(
    'experiment_units',
    'Units (tasks, as a rule) in an arm of an experiment, in its run of now or else its last one.',
    ['arm'],
    'arms',
  ),
  experimentCalls: counter(
    'experiment_calls_total',
    'Calls that an experiment may take, in its run of now or else its last one, by what they were assigned by: `unit`, what it assigns by, or `fallback`, in place of that; or why they take no part: `not_drawn`, or `excluded`, for they said nothing to assign them by. Of `dropped` ones, which are in arms, nothing is kept: there were too many units.',
    ['experiment', 'assigned'],
    'experiments × 5',
  ),
  chaosArmed: gauge('chaos_armed', '1 while faults are armed.', [], '1'),
  chaosEngineErrors: counter(
    'chaos_engine_errors_total',
    'Defects of the fault engine; the calls went on unharmed.',
    [],
    '1',
  ),
  chaosJournalDropped: counter(
    'chaos_journal_dropped_total',
    'Entries of the journal of faults that were not written: the disk refused, or there were too many at a time.',
    [],
    '1',
  ),
} as const

const PROBE_SECONDS = [0.001, 0.005, 0.01, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10]
const INCIDENT_SECONDS = [1, 5, 15, 30, 60, 90, 120, 300, 600, 1_800, 3_600, 14_400]

/** The metrics about probes and incidents. */
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
