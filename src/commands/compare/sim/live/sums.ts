import type { FaultStatus } from '../../../../chaos/control/status.ts'
import { acts } from './faults.ts'
import { countOf, type FaultCount, fates, type Reading, totalOf } from './reading.ts'
import type { Tally } from '../../../../load/shop-agents.ts'

interface Sum {
  readonly what: string
  readonly expected: number
  readonly found: number
}

/** All counters of a finished run. */
export interface Known {
  readonly reading: Reading
  readonly phases: readonly { readonly name: string; readonly reading: Reading; readonly tally: Tally }[]
  readonly tally: Tally
  readonly faults: readonly FaultStatus[]
  /** Orders known by agents as placed. */
  readonly acknowledged: readonly string[]
  /** Placements of each order at the server. */
  readonly placed: ReadonlyMap<string, number>
}

/** Checks that the counts agree. Returns the number of checks, and a sentence for each check that failed. */
export function check(known: Known): { readonly checked: number; readonly wrong: readonly string[] } {
  const sums = [...ofFaults(known), ...ofAgents(known), ...ofPhases(known), ...ofOrders(known)]
  const wrong = sums.filter(({ expected, found }) => expected !== found)
  return {
    checked: sums.length,
    wrong: wrong.map(({ what, expected, found }) => `${what}: ${found} instead of ${expected}`),
  }
}

const fatesOf = (count: FaultCount) => fates.reduce((total, fate) => total + count[fate], 0)

/** Returns the sums that check the metrics of faults against each other and against the engine's counts. */
function ofFaults({ reading, faults }: Known): readonly Sum[] {
  const sums: Sum[] = []
  for (const status of faults) {
    const { name, discovery } = status
    const counted = countOf(status)
    const told = reading.faults.get(name)
    sums.push({ what: `fates of ${name}`, expected: counted.injected, found: fatesOf(counted) })
    for (const key of ['injected', ...fates] as const)
      sums.push({ what: `${key} of ${name} in metrics`, expected: counted[key], found: told?.[key] ?? 0 })
    const { injected, hits, notReached } = discovery
    sums.push({ what: `own requests hit by ${name}`, expected: injected, found: hits + notReached })
  }
  const own = faults.reduce((total, { discovery }) => total + discovery.injected, 0)
  const total = totalOf(reading)
  const all = faults.reduce((sum, { injected }) => sum + injected, 0)
  return [
    ...sums,
    { what: 'injected in metrics', expected: all, found: total.injected },
    { what: 'fates in metrics', expected: total.injected, found: fatesOf(total) },
    { what: 'own requests hit, in metrics', expected: own, found: reading.discovery },
  ]
}

function compared(
  where: string,
  { calls, answered, succeeded, failed }: Reading,
  tally: Tally,
): readonly Sum[] {
  return [
    { what: `calls${where}`, expected: tally.calls, found: calls },
    { what: `calls with an error${where}`, expected: tally.errors, found: calls - answered },
    { what: `tasks that succeeded${where}`, expected: tally.succeeded, found: succeeded },
    { what: `tasks that failed${where}`, expected: tally.failed, found: failed },
  ]
}

/** Returns the sums that check the agents' counts against the gateway's counts. */
function ofAgents({ reading, tally }: Known): readonly Sum[] {
  const { right, wrong, flagged, errors } = tally
  return [
    { what: 'endings of calls', expected: tally.calls, found: right + wrong + flagged + errors },
    ...compared('', reading, tally),
    // In this demo, an answer is changed by at most one fault, so escaped faults equal wrong answers.
    { what: 'escaped faults', expected: wrong, found: totalOf(reading).escaped },
  ]
}

const isQuiet = (phase: string) => acts.some(({ name, faults }) => name === phase && faults.length === 0)

function ofPhases({ phases }: Known): readonly Sum[] {
  return phases.flatMap(({ name, reading, tally }) => [
    ...compared(` ${name}`, reading, tally),
    ...(isQuiet(name)
      ? [{ what: `faults injected ${name}`, expected: 0, found: totalOf(reading).injected }]
      : []),
  ])
}

/** Returns the sums that check that no order was placed twice and no acknowledged order is missing. */
function ofOrders({ acknowledged, placed }: Known): readonly Sum[] {
  const twice = [...placed.values()].filter((times) => times > 1).length
  const missing = acknowledged.filter((ref) => !placed.has(ref)).length
  return [
    { what: 'orders placed twice', expected: 0, found: twice },
    { what: 'orders acknowledged but not placed', expected: 0, found: missing },
  ]
}
