import type { StateKey, StateStore } from '../mesh/policy.ts'
import type { Metrics } from './metrics.ts'

const breakerStates = ['closed', 'open', 'half_open'] as const

/** Reads what policies remember into gauges: done at a scrape, for it changes more often than anybody looks. */
export function collectStates(
  { breakerState, retryBudget }: Pick<Metrics, 'breakerState' | 'retryBudget'>,
  state: StateStore,
): void {
  breakerState.reset()
  for (const [key, breaker] of state.list<Showing<{ state: string }>>('breaker')) {
    if (key.set !== 'default') continue
    const now = breaker.snapshot().state
    for (const state of breakerStates) breakerState.inc({ ...labelsOf(key), state }, now === state ? 1 : 0)
  }
  retryBudget.reset()
  for (const [{ server, set }, budget] of state.list<Showing<{ balance: number }>>('retry-budget'))
    if (set === 'default') retryBudget.set({ server }, budget.snapshot().balance)
}

interface Showing<Snapshot> {
  snapshot(): Snapshot
}

function labelsOf({ server, tool }: StateKey) {
  return { server, tool: tool ?? '_other' }
}
