import type { StateStore } from '../mesh/policy.ts'
import type { Metrics } from './metrics.ts'
import { OTHER } from './metrics/tool-series.ts'

const breakerStates = ['closed', 'open', 'half_open'] as const
const schemaStates = ['compiled', 'waiting', 'refused'] as const

/** Reads what policies remember into gauges: done at a scrape, for it changes more often than anybody looks. */
export function collectStates(
  metrics: Pick<Metrics, 'breakerState' | 'retryBudget' | 'schemas' | 'tools'>,
  state: StateStore,
): void {
  const { breakerState, retryBudget, schemas, tools } = metrics
  breakerState.reset()
  for (const [{ server, tool, set }, breaker] of state.list<Showing<{ state: string }>>('breaker')) {
    if (set !== 'default') continue
    const now = breaker.snapshot().state
    const label = tool === undefined ? OTHER : tools.of(server, tool, always).labels.tool
    for (const state of breakerStates) breakerState.inc({ server, tool: label, state }, now === state ? 1 : 0)
  }
  retryBudget.reset()
  for (const [{ server, set }, budget] of state.list<Showing<{ balance: number }>>('retry-budget'))
    if (set === 'default') retryBudget.set({ server }, budget.snapshot().balance)
  for (const schemaState of schemaStates) schemas.set({ state: schemaState }, 0)
  for (const [, known] of state.list<Counting>('schemas'))
    for (const schemaState of schemaStates) schemas.set({ state: schemaState }, known.counts()[schemaState])
}

/** Reads how many requests are under way. */
export function collectInFlight({ underWay, inFlight }: Pick<Metrics, 'underWay' | 'inFlight'>): void {
  underWay.reset()
  for (const [server, count] of inFlight) underWay.set({ server }, count)
}

interface Counting {
  counts(): Readonly<Record<(typeof schemaStates)[number], number>>
}

interface Showing<Snapshot> {
  snapshot(): Snapshot
}

/** Only tools in a catalog have state of their own. */
const always = () => true
