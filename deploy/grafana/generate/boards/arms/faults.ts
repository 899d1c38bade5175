import { lines, stack } from '../../panels.ts'
import { perSecond, query } from '../../query.ts'
import { ARM } from './chosen.ts'

const FATES = 'breakwater_fault_outcomes_total'

/** The fates of the faults of each arm, as shares. */
const shares = `sum by (arm, fate) (rate(${FATES}${ARM}[5m])) / on (arm) group_left () (sum by (arm) (rate(${FATES}${ARM}[5m])) > 0)`

export const faults = [
  stack({
    title: 'Injected',
    about: 'Faults that were injected into calls of agents. Arms that send more attempts meet more of them.',
    unit: 'reqps',
    queries: [perSecond('breakwater_faults_injected_total', ARM, ['arm'])],
  }),
  lines({
    title: 'What became of them',
    about:
      'Shares of masked, delayed, surfaced, escaped, and not reached ones in each arm: masked is what policies are for, escaped what nobody noticed.',
    unit: 'percentunit',
    queries: [query(shares, '{{arm}} {{fate}}')],
  }),
  stack({
    title: 'What the mesh did about them',
    about:
      'Tries sent again after one that was hit, and calls that a breaker kept from a server that was hit.',
    unit: 'reqps',
    queries: [perSecond('breakwater_fault_reactions_total', ARM, ['arm', 'reaction'])],
  }),
]
