import { counter, gauge } from '../../mesh/metric-spec.ts'

/** The part of the table that is about policies and faults. */
export const mesh = {
  rejections: counter(
    'rejections_total',
    'Calls, and retries and hedges of them, that a policy kept from their server, by why.',
    ['server', 'reason'],
    'servers × reasons of policies',
  ),
  partials: counter(
    'partial_results_total',
    'Results of which something is missing, by who found out.',
    ['server', 'source'],
    'servers × 5 sources',
  ),
  meshEvents: counter(
    'policy_events_total',
    'Changes of state in policies, by type.',
    ['server', 'type'],
    'servers × types of events',
  ),
  faultsInjected: counter(
    'faults_injected_total',
    'Faults that were injected into calls of agents; those of the runtime API count as one.',
    ['fault', 'type'],
    'faults of the plans that were in force',
  ),
  discoveryFaults: counter(
    'discovery_faults_injected_total',
    'Faults that were injected into what the gateway asks servers by itself, such as their lists.',
    ['fault', 'type'],
    'faults of the plans that were in force',
  ),
  faultOutcomes: counter(
    'fault_outcomes_total',
    'What became of faults injected into calls of agents: masked, delayed, surfaced as an error or a flag, escaped to the agent unnoticed, or not_reached. Their sum is that of the faults injected.',
    ['fault', 'fate'],
    'faults of the plans that were in force × 5',
  ),
  faultDelay: counter(
    'fault_delay_seconds_total',
    'How long agents had to wait for good answers because of faults; those that were `delayed`.',
    ['fault'],
    'faults of the plans that were in force',
  ),
  faultReactions: counter(
    'fault_reactions_total',
    'What the mesh did about faults: calls sent again after one that was hit (`resent`), and rejected because a breaker was open at a server that was hit (`rejected`).',
    ['fault', 'reaction'],
    'faults of the plans that were in force × 2',
  ),
  faultsKept: counter(
    'fault_replies_kept_total',
    'Later calls that a corrupted reply reached, looking fine: it had been kept.',
    ['fault'],
    'faults of the plans that were in force',
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
