import { type HandIn, handIn } from '../../src/evidence/hand-in.ts'
import { summary } from './runs.ts'

const hour = 3_600_000

/** When the documents of tests began: an hour after the start of 2026, in milliseconds since the epoch. */
export const BEGAN_AT = Date.UTC(2026) + hour

/** The document of a scenario that passed: 300 calls met a fault, and a claim is proven. */
export function scenarioOf(more: Partial<HandIn> = {}): HandIn {
  const {
    measuredBy,
    document,
    gateway,
    bootId,
    by,
    approver,
    approverProof,
    envelope,
    trust,
    verdict,
    ...run
  } = summary()
  return handIn.parse({
    ...run,
    id: 'scenario-one',
    kind: 'scenario',
    name: 'hang',
    at: BEGAN_AT,
    arms: [armOf('treatment', 'default')],
    claims: [claimOf()],
    ...more,
  })
}

/** The document of a paired comparison of 100 tasks in which the treatment won. */
export const pairedOf = (more: Partial<HandIn> = {}): HandIn =>
  scenarioOf({
    id: 'paired-one',
    kind: 'paired',
    name: 'orders: cautious against default',
    arms: [armOf('control', 'default'), armOf('treatment', 'cautious')],
    claims: [claimOf({ n: 100 })],
    ...more,
  })

export const armOf = (name: string, set: string, calls = 300): HandIn['arms'][number] => ({
  ...{ name, set, calls, good: calls, wrong: null, rejected: 0, unjudged: 0, attempts: calls },
})

export const claimOf = (more: Partial<HandIn['claims'][number]> = {}): HandIn['claims'][number] => ({
  ...{ text: 'share of calls that succeed: at least 0.9', value: 1, low: 0.98, high: 1, n: 300 },
  status: 'proven',
  ...more,
})
