import { counter, gauge } from './spec.ts'

/** The part of the table that is about policies and faults. */
export const mesh = {
  rejections: counter(
    'rejections_total',
    'Calls, and retries and hedges of them, that a policy kept from their server, by why.',
    ['server', 'reason'],
    'servers × reasons of policies',
  ),
  retries: counter(
    'retries_total',
    'Failed calls, by whether they were sent again (`sent`) or why not, and calls that were hedged.',
    ['server', 'decision'],
    'servers × 11 decisions',
  ),
  replays: counter(
    'idempotent_replays_total',
    'Calls answered with the answer of an earlier one, by whether that was over or still under way.',
    ['server', 'how'],
    'servers × 2',
  ),
  partials: counter(
    'partial_results_total',
    'Results of which something is missing, by who found out.',
    ['server', 'source'],
    'servers × 5 sources',
  ),
  infeasible: counter(
    'deadlines_infeasible_total',
    'Calls whose deadline could not be met by estimate, whether they were stopped for it or not.',
    ['server'],
    'servers',
  ),
  invalidArguments: counter(
    'invalid_arguments_total',
    "Calls whose arguments break the tool's schema, whether they were stopped for it or not.",
    ['server', 'tool'],
    'tools',
  ),
  meshEvents: counter(
    'policy_events_total',
    'Changes of state in policies, by type.',
    ['server', 'type'],
    'servers × types of events',
  ),
  breakerTransitions: counter(
    'breaker_transitions_total',
    'Changes of state of breakers, by what brought them about and the state that was entered.',
    ['server', 'tool', 'dimension', 'state'],
    'tools × 4 dimensions × 3 states',
  ),
  breakerState: gauge(
    'breaker_state',
    '1 for the state that a breaker of the default policies is in; of a tool with several replicas, how many are.',
    ['server', 'tool', 'state'],
    'tools × 3 states',
  ),
  retryBudget: gauge(
    'retry_budget_balance',
    'Retries that the budget of a server would allow now, by the default policies; without a server, that of the gateway.',
    ['server'],
    'servers + 1',
  ),
  schemas: gauge(
    'schemas',
    'Distinct schemas of tools by whether they are compiled, wait for it, or are refused: then nothing is checked with them.',
    ['state'],
    '3 states',
  ),
  faultsInjected: counter(
    'faults_injected_total',
    'Faults that were done to calls; those of the runtime API count as one.',
    ['fault', 'type'],
    'faults of the plans that were in force',
  ),
  faultOutcomes: counter(
    'fault_outcomes_total',
    'What became of injected faults: masked, surfaced as an error or a flag, or escaped to the agent unnoticed.',
    ['fault', 'handled'],
    'faults of the plans that were in force × 3',
  ),
  chaosArmed: gauge('chaos_armed', '1 while faults are armed.', [], '1'),
  chaosEngineErrors: counter(
    'chaos_engine_errors_total',
    'Defects of the fault engine; the calls went on unharmed.',
    [],
    '1',
  ),
} as const
