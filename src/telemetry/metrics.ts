import { Counter, Gauge, Histogram, Registry } from 'prom-client'

const DURATION_BUCKETS = [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 120, 300]

/** Every metric there is: name, meaning, labels, buckets. `tool` values come from the catalogs, else `_other`. */
export function createMetrics() {
  const registry = new Registry()
  const registers = [registry]
  const inFlight = new Map<string, number>()
  new Gauge({
    name: 'breakwater_inflight',
    help: 'Requests to servers under way.',
    labelNames: ['server'],
    registers,
    collect() {
      this.reset()
      for (const [server, count] of inFlight) this.set({ server }, count)
    },
  })
  return {
    registry,
    /** Requests under way by server: counted here, for it changes twice a call, and read at a scrape. */
    inFlight,
    toolCalls: new Counter({
      name: 'breakwater_tool_calls_total',
      help: 'Tool calls of agents, by what became of them.',
      labelNames: ['server', 'tool', 'result'],
      registers,
    }),
    toolCallDuration: new Histogram({
      name: 'breakwater_tool_call_duration_seconds',
      help: 'From the arrival of a tool call to its outcome.',
      labelNames: ['server', 'tool'],
      buckets: DURATION_BUCKETS,
      registers,
    }),
    requests: new Counter({
      name: 'breakwater_requests_total',
      help: 'Requests to servers other than tool calls, by what became of them.',
      labelNames: ['server', 'result'],
      registers,
    }),
    attempts: new Counter({
      name: 'breakwater_upstream_attempts_total',
      help: 'Tries of tool calls at a server, by what became of them and, if a reply came, how good it was.',
      labelNames: ['server', 'tool', 'outcome', 'verdict'],
      registers,
    }),
    rejections: new Counter({
      name: 'breakwater_rejections_total',
      help: 'Calls that a policy answered in place of a server, by why.',
      labelNames: ['server', 'reason'],
      registers,
    }),
    retries: new Counter({
      name: 'breakwater_retries_total',
      help: 'Failed calls, by whether they were sent again (`sent`) or why not, and calls that were hedged.',
      labelNames: ['server', 'decision'],
      registers,
    }),
    replays: new Counter({
      name: 'breakwater_idempotent_replays_total',
      help: 'Calls answered with the answer of an earlier one, by whether that was over or still under way.',
      labelNames: ['server', 'how'],
      registers,
    }),
    partials: new Counter({
      name: 'breakwater_partial_results_total',
      help: 'Results of which something is missing, by who found out.',
      labelNames: ['server', 'source'],
      registers,
    }),
    infeasible: new Counter({
      name: 'breakwater_deadlines_infeasible_total',
      help: 'Calls whose deadline could not be met by estimate, whether they were stopped for it or not.',
      labelNames: ['server'],
      registers,
    }),
    invalidArguments: new Counter({
      name: 'breakwater_invalid_arguments_total',
      help: "Calls whose arguments break the tool's schema, whether they were stopped for it or not.",
      labelNames: ['server', 'tool'],
      registers,
    }),
    meshEvents: new Counter({
      name: 'breakwater_policy_events_total',
      help: 'Changes of state in policies, by type.',
      labelNames: ['server', 'type'],
      registers,
    }),
    breakerTransitions: new Counter({
      name: 'breakwater_breaker_transitions_total',
      help: 'Changes of state of breakers, by what brought them about and the state that was entered.',
      labelNames: ['server', 'tool', 'dimension', 'state'],
      registers,
    }),
    faultsInjected: new Counter({
      name: 'breakwater_faults_injected_total',
      help: 'Faults that were done to calls; those of the runtime API count as one.',
      labelNames: ['fault', 'type'],
      registers,
    }),
    faultOutcomes: new Counter({
      name: 'breakwater_fault_outcomes_total',
      help: 'What became of injected faults: masked, surfaced as an error or a flag, or escaped to the agent unnoticed.',
      labelNames: ['fault', 'handled'],
      registers,
    }),
    chaosArmed: new Gauge({
      name: 'breakwater_chaos_armed',
      help: '1 while faults are armed.',
      registers,
    }),
    chaosEngineErrors: new Counter({
      name: 'breakwater_chaos_engine_errors_total',
      help: 'Defects of the fault engine; the calls went on unharmed.',
      registers,
    }),
    breakerState: new Gauge({
      name: 'breakwater_breaker_state',
      help: '1 for the state that a breaker is in; of a tool with several replicas, how many are.',
      labelNames: ['server', 'tool', 'state'],
      registers,
    }),
    retryBudget: new Gauge({
      name: 'breakwater_retry_budget_balance',
      help: 'Retries that the budget of a server would allow now; without a server, that of the gateway.',
      labelNames: ['server'],
      registers,
    }),
    sessionRecoveries: new Counter({
      name: 'breakwater_session_recoveries_total',
      help: 'Calls for which a lost session was opened again.',
      labelNames: ['server'],
      registers,
    }),
    sessions: new Gauge({
      name: 'breakwater_sessions',
      help: 'Sessions of agents that are open.',
      registers,
    }),
    serverUp: new Gauge({
      name: 'breakwater_server_up',
      help: '1 while a server answers, else 0.',
      labelNames: ['server'],
      registers,
    }),
    serverTools: new Gauge({
      name: 'breakwater_server_tools',
      help: 'Tools that a server offers to agents.',
      labelNames: ['server'],
      registers,
    }),
    configInfo: new Gauge({
      name: 'breakwater_config_info',
      help: '1, labelled with the hash of the config in force.',
      labelNames: ['hash'],
      registers,
    }),
    configReloadSuccess: new Gauge({
      name: 'breakwater_config_reload_success',
      help: '1 if the last reload took effect, 0 if the old config went on.',
      registers,
    }),
    configReloadTimestamp: new Gauge({
      name: 'breakwater_config_reload_timestamp_seconds',
      help: 'When the config in force was loaded, in seconds since the Unix epoch.',
      registers,
    }),
  } as const
}

export type Metrics = ReturnType<typeof createMetrics>
