import { replay, type Differing, type Replayed } from '../../chaos/journal/explain.ts'
import type { Line } from '../../chaos/journal/chain.ts'
import type { DecisionEntry } from '../../chaos/journal/entry.ts'
import type { Fault } from '../../chaos/plan/common.ts'
import { isObject } from '../../protocol/jsonrpc.ts'
import type { Plan } from '../../routes/chaos/plan.ts'

/** A fault that came by the runtime API, and what was decided about it until another of its name came. */
interface Injection {
  readonly fault: Fault
  readonly entries: DecisionEntry[]
}

/**
 * Decides again all that a journal decided: with the faults of `plan`, and with those that came by the runtime API as
 * the journal itself has them.
 */
export function decideAgain({ seed, faults }: Plan, lines: readonly Line[]): Replayed {
  const planned: DecisionEntry[] = []
  /** The latest injection of each name, and all of them. */
  const injected = new Map<string, Injection>()
  const injections: Injection[] = []
  const names = new Set(faults.map(({ name }) => name))
  // A decision is finished after others that came later: by its number it is where it was made.
  for (const line of inOrder(lines)) {
    if (line.kind === 'decision') {
      const made = names.has(line.fault) ? undefined : injected.get(line.fault)
      ;(made?.entries ?? planned).push(line)
      continue
    }
    const fault = line.kind === 'control' && line.type === 'injected' ? line.detail?.fault : undefined
    if (!isObject(fault)) continue
    const made: Injection = { fault: fault as unknown as Fault, entries: [] }
    injected.set(made.fault.name, made)
    injections.push(made)
  }
  const parts = [
    replay({ seed, faults }, planned),
    ...injections.map((made) => replay({ seed, faults: [made.fault] }, made.entries)),
  ]
  const differing: Differing[] = parts.flatMap((part) => part.differing)
  return {
    decisions: sum(parts.map(({ decisions }) => decisions)),
    same: sum(parts.map(({ same }) => same)),
    differing: differing.sort((a, b) => a.seq - b.seq),
  }
}

/** The entries of each process by their numbers, which count from 1: what comes first is always what somebody did. */
function inOrder(lines: readonly Line[]): readonly Line[] {
  const ordered: Line[][] = [[]]
  for (const line of lines) {
    if (line.kind === 'header' || line.kind === 'gap') continue
    if (line.kind === 'control' && line.seq === 1) ordered.push([])
    ordered.at(-1)!.push(line)
  }
  return ordered.flatMap((run) => run.sort((a, b) => numberOf(a) - numberOf(b)))
}

const numberOf = (line: Line) => ('seq' in line ? line.seq : 0)

const sum = (numbers: readonly number[]) => numbers.reduce((total, number) => total + number, 0)
