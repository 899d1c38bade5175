import type { RequestId } from '../../mesh/call.ts'
import { createKeyedRandom, type Seed } from '../../mesh/keyed-random.ts'
import { decider } from '../decide/decide.ts'
import type { Fault } from '../plan/common.ts'
import type { Because, DecisionEntry } from './entry.ts'

/** Returns the decisions about a call, the oldest first: by its id, its callKey or its intent. */
export function explain(entries: readonly DecisionEntry[], call: RequestId): readonly DecisionEntry[] {
  const wanted = String(call)
  return entries.filter(
    ({ callKey, call: { id, intent } }) => String(id) === wanted || callKey === wanted || intent === wanted,
  )
}

/** A decision another plan would make differently. */
export interface Differing {
  readonly seq: number
  readonly fault: string
  readonly what: 'fault_missing' | 'draw' | 'decision'
  readonly was: number | string
  readonly now: number | string
}

export interface Replayed {
  readonly decisions: number
  readonly same: number
  readonly differing: readonly Differing[]
}

/** Reasons for a miss that follow from the draws and the schedule of a plan, not from a limit. */
const drawnFor: ReadonlySet<Because | undefined> = new Set(['rate', 'schedule', 'task'])

/** Maximum number of listed differences. */
const MAX_TOLD = 1_000

/**
 * Repeats journaled decisions with the same or another plan, and returns the differences. Where a limit has decided,
 * such as `maxInjections`, only the draw is compared.
 */
export function replay(
  { seed, faults }: { readonly seed: Seed; readonly faults: readonly Fault[] },
  entries: readonly DecisionEntry[],
): Replayed {
  const random = createKeyedRandom(seed)
  const deciders = new Map(faults.map((fault) => [fault.name, decider(fault, random)]))
  const differing: Differing[] = []
  for (const entry of entries) {
    const { seq, fault } = entry
    const decide = deciders.get(fault)
    const again = decide?.(entry)
    const drawn = drawnFor.has(entry.because) ? entry.because! : 'hit'
    const now = again?.because ?? 'hit'
    if (again === undefined) differing.push({ seq, fault, what: 'fault_missing', was: drawn, now: 'none' })
    else if (again.u !== entry.u) differing.push({ seq, fault, what: 'draw', was: entry.u, now: again.u })
    else if (now !== drawn && entry.isCaught !== true)
      differing.push({ seq, fault, what: 'decision', was: drawn, now })
  }
  const told = differing.slice(0, MAX_TOLD)
  return { decisions: entries.length, same: entries.length - differing.length, differing: told }
}
