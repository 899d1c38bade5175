import { lines, stack } from '../../panels.ts'
import { perSecond, query } from '../../query.ts'
import { ARM } from './chosen.ts'

const FATES = 'breakwater_fault_outcomes_total'

/** The fates of the faults of each arm, as shares. */
const shares = `sum by (arm, fate) (rate(${FATES}${ARM}[5m])) / on (arm) group_left () (sum by (arm) (rate(${FATES}${ARM}[5m])) > 0)`

export const faults = [
  stack({
    title: 'Injected faults',
    about: 'Faults injected into calls of agents. Arms with more attempts meet more faults.',
    unit: 'reqps',
    queries: [perSecond('breakwater_faults_injected_total', ARM, ['arm'])],
  }),
  lines({
    title: 'Fates of injected faults',
    about:
      'Shares of masked, delayed, surfaced, escaped and unreached faults in each arm. Policies should mask faults. Nobody noticed escaped faults.',
    unit: 'percentunit',
    queries: [query(shares, '{{arm}} {{fate}}')],
  }),
  stack({
    title: 'Reactions to injected faults',
    about: 'Retries after an attempt with a fault, and calls that a breaker kept from a server with faults.',
    unit: 'reqps',
    queries: [perSecond('breakwater_fault_reactions_total', ARM, ['arm', 'reaction'])],
  }),
]
