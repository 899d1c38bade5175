import type { DecisionEntry } from '../chaos/journal/entry.ts'
import type { SimulatedGateway } from './gateway.ts'

/** Names of faults that hit no call, each with the reason. */
export type IdleFaults = ReadonlyMap<string, string>

/**
 * Returns the armed faults of a gateway that have hit no call so far. Outcomes of the calls show nothing about these
 * faults.
 */
export function idleFaults({ faults, journal }: Pick<SimulatedGateway, 'faults' | 'journal'>): IdleFaults {
  const idle = faults.filter(({ counts }) => counts.injected === 0)
  if (idle.length === 0) return NONE
  const decisions = journal.decisions()
  return new Map(
    idle.map(({ fault: { name }, counts }) => {
      const told = decisions.find((entry) => entry.fault === name && wasKept(entry))
      return [
        name,
        counts.decided === 0 ? 'no call matches it' : told ? whyKept(told) : 'it was drawn for no call',
      ]
    }),
  )
}

const NONE: IdleFaults = new Map()

/** Returns true if a fault was drawn for a call, but was not injected. */
const wasKept = ({ status, because }: DecisionEntry): boolean =>
  status === 'not_applicable' || because === 'refused' || because === 'write'

function whyKept({ because, note }: DecisionEntry): string {
  if (because === 'write') return 'it spares tools that are not known to be read-only (allowWrites)'
  return typeof note?.why === 'string' ? note.why : 'it has no effect on simulated servers'
}
