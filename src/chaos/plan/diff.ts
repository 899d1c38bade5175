import { isDeepStrictEqual } from 'node:util'
import type { Fault } from './common.ts'

/** What a new plan does to an old one, by the names of the faults. */
export interface PlanDiff {
  readonly added: readonly string[]
  readonly removed: readonly string[]
  readonly changed: readonly string[]
  readonly kept: readonly string[]
}

export function diffPlans(old: readonly Fault[], next: readonly Fault[]): PlanDiff {
  const before = new Map(old.map((fault) => [fault.name, fault]))
  const stay = next.filter(({ name }) => before.has(name))
  const isSame = (fault: Fault) => isDeepStrictEqual(fault, before.get(fault.name))
  const names = (faults: readonly Fault[]) => faults.map(({ name }) => name)
  const after = new Set(names(next))
  return {
    added: names(next.filter(({ name }) => !before.has(name))),
    removed: names(old.filter(({ name }) => !after.has(name))),
    changed: names(stay.filter((fault) => !isSame(fault))),
    kept: names(stay.filter(isSame)),
  }
}
