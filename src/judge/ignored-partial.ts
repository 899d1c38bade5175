import { findingOf, type Rule, succeeded, toolOf } from './rule.ts'
import type { JudgedCall } from './task.ts'

/** Finds agents that take a part for the whole. */
export const ignoredPartial: Rule = {
  title: 'ignores that a reply is partial',
  help: 'A reply was flagged as partial, the task was reported as `succeeded`, and no whole reply to the same call came later. A task reported as `degraded` does not count. The finding is only likely if a whole reply came before, or a whole reply of the tool to other arguments came later.',
  judge({ calls, outcome }) {
    const wholes = calls.filter((call) => succeeded(call) && !isPartial(call))
    const lastOfCall = lastEnds(wholes, ({ key }) => key)
    const ignored = calls.filter((call) => isPartial(call) && (lastOfCall.get(call.key) ?? -1) < call.endedAt)
    if (ignored.length === 0) return { findings: [] }
    if (outcome === undefined) return { findings: [], undecided: 'no outcome was reported' }
    if (outcome !== 'succeeded') return { findings: [] }
    const lastOfTool = lastEnds(wholes, toolOf)
    const findings = ignored.map((call) => {
      const isHelped = lastOfCall.has(call.key) || (lastOfTool.get(toolOf(call)) ?? -1) >= call.endedAt
      const message = `${toolOf(call)} gave a partial reply, and no whole reply came later`
      return findingOf(isHelped ? 'likely' : 'proven', message, [call])
    })
    return { findings }
  },
}

const isPartial = ({ told }: JudgedCall) => told?.partial === true

/** Returns the end of the last call of each group, in microseconds. */
function lastEnds(
  calls: readonly JudgedCall[],
  groupOf: (call: JudgedCall) => string,
): ReadonlyMap<string, number> {
  const ends = new Map<string, number>()
  for (const call of calls) ends.set(groupOf(call), Math.max(call.endedAt, ends.get(groupOf(call)) ?? 0))
  return ends
}
