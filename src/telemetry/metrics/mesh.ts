import { counter, gauge, histogram } from '../../mesh/metric-spec.ts'

/** The metrics of policies and faults. */
export const mesh = {
  rejections: counter(
    'rejections_total',
    'Calls, retries and hedges rejected by a policy before they reached the server, by reason.',
    ['server', 'reason', 'arm'],
    'servers × reasons of policies × arms',
  ),
  partials: counter(
    'partial_results_total',
    'Partial results, by the source that noticed.',
    ['server', 'source', 'arm'],
    'servers × 5 sources × arms',
  ),
  meshEvents: counter(
    'policy_events_total',
    'State changes of policies, such as an opened breaker, by type.',
    ['server', 'type', 'arm'],
    'servers × types of events × arms',
  ),
  faultsInjected: counter(
    'faults_injected_total',
    'Faults injected into calls of agents, counted at the end of the call. The first 2,000 fault names have their own series; all others count as `_other`.',
    ['fault', 'type', 'arm'],
    'faults that were in force, 2,001 at most × arms',
  ),
  discoveryFaults: counter(
    'discovery_faults_injected_total',
    "Faults injected into the gateway's own requests to servers, such as lists, counted at the end of the request.",
    ['fault', 'type'],
    'faults that were in force, 2,001 at most',
  ),
  faultOutcomes: counter(
    'fault_outcomes_total',
    'Faults injected into calls of agents, by fate: masked, delayed, surfaced as an error or a flag, escaped to the agent unnoticed, or not_reached. The sum of all fates is the number of injected faults.',
    ['fault', 'fate', 'arm'],
    'faults that were in force, 2,001 at most × 5 × arms',
  ),
  faultDelay: counter(
    'fault_delay_seconds_total',
    'Total delay of good answers by faults with the fate `delayed`, in seconds.',
    ['fault', 'arm'],
    'faults that were in force, 2,001 at most × arms',
  ),
  faultReactions: counter(
    'fault_reactions_total',
    'Reactions of policies to faults: attempts after an attempt that a fault hit (`resent`), and calls rejected by a breaker that was open at a server hit by faults (`rejected`).',
    ['fault', 'reaction', 'arm'],
    'faults that were in force, 2,001 at most × 2 × arms',
  ),
  faultsKept: counter(
    'fault_replies_kept_total',
    'Later calls that got a stored reply corrupted by a fault, with nothing to show it.',
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
    'Units (usually tasks) in an arm of an experiment, in its current or else its last run.',
    ['arm'],
    'arms',
  ),
  experimentCalls: counter(
    'experiment_calls_total',
    'Calls that match an experiment, in its current or else its last run, by assignment: by the `unit` of the experiment, by the `fallback`, or in no arm (`not_drawn`; `excluded`: no unit in the call). Calls that are `dropped` are in arms but not recorded, because there were too many units.',
    ['experiment', 'assigned'],
    'experiments × 5',
  ),
  chaosArmed: gauge('chaos_armed', '1 while faults are armed.', [], '1'),
  chaosEngineErrors: counter(
    'chaos_engine_errors_total',
    'Internal errors of the fault engine; the calls continued.',
    [],
    '1',
  ),
  chaosJournalDropped: counter(
    'chaos_journal_dropped_total',
    'Entries missing in the journal of faults, because the disk failed or too many entries came at a time.',
    [],
    '1',
  ),
} as const

const PROBE_SECONDS = [0.001, 0.005, 0.01, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10]
const INCIDENT_SECONDS = [1, 5, 15, 30, 60, 90, 120, 300, 600, 1_800, 3_600, 14_400]

/** The metrics of probes and incidents. */
export const health = {
  probeDuration: histogram(
    'probe_duration_seconds',
    'Duration of successful steps of probes, in seconds: opening a session, a ping, the lists, a tool call.',
    ['step'],
    '4 steps × 13',
    PROBE_SECONDS,
  ),
  probeFailures: counter(
    'probe_failures_total',
    'Failed probes of servers, by failure reason.',
    ['server', 'reason'],
    'servers × 10 reasons',
  ),
  probeLatency: gauge(
    'probe_latest_duration_seconds',
    'Duration of a step in the latest probe with this step, in seconds.',
    ['server', 'step'],
    'servers × 3 steps',
  ),
  probeBaseline: gauge(
    'probe_baseline_duration_seconds',
    'Usual duration of a step of a probe, in seconds: the median of steps that were not slow, from five steps on.',
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
    'Incidents begun, by server; for reasons see the count of `incident_detection_duration_seconds`.',
    ['server'],
    'servers',
  ),
  timeToDetect: histogram(
    'incident_detection_duration_seconds',
    'Time to detect an incident, in seconds: from the last successful probe, or from the first failed call or session, to the detection.',
    ['reason'],
    '10 reasons × 14',
    INCIDENT_SECONDS,
  ),
  timeToRecover: histogram(
    'incident_recovery_duration_seconds',
    'Time to recover, in seconds: from the first sign of an incident to the next successful probe; only for incidents watched by the same process from start to end.',
    ['reason'],
    '10 reasons × 14',
    INCIDENT_SECONDS,
  ),
  notices: counter(
    'notices_total',
    'Notices of incidents to webhooks, by result: delivered, retried, failed, or dropped unsent.',
    ['webhook', 'result'],
    '16 webhooks × 4 results',
  ),
} as const
