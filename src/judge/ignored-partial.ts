import { findingOf, type Rule, succeeded, toolOf } from './rule.ts'
import type { JudgedCall, Task } from './task.ts'

/** Finds agents that take a part for the whole. */
export const ignoredPartial: Rule = {
  title: 'ignores that a reply is partial',
  help: 'A reply was flagged as partial, the task was reported as `succeeded`, and no whole reply to the same call came later. A task reported as `degraded` does not count. The finding is only likely if a whole reply came before, or a whole reply of the tool to other arguments came later.',
  judge(task) {
    const ignored = task.calls.filter((call) => isPartial(call) && !hasWholeAfter(task, call))
    if (ignored.length === 0) return { findings: [] }
    if (task.outcome === undefined) return { findings: [], undecided: 'no outcome was reported' }
    if (task.outcome !== 'succeeded') return { findings: [] }
    const lastWhole = new Map<string, number>()
    for (const call of task.calls)
      if (isWhole(call)) lastWhole.set(toolOf(call), Math.max(call.endedAt, lastWhole.get(toolOf(call)) ?? 0))
    const findings = ignored.map((call) => {
      const isHelped = (lastWhole.get(toolOf(call)) ?? -1) >= call.endedAt || wholeOf(task, call).length > 0
      const message = `${toolOf(call)} gave a partial reply, and no whole reply came later`
      return findingOf(isHelped ? 'likely' : 'proven', message, [call])
    })
    return { findings }
  },
}

const isPartial = ({ told }: JudgedCall) => told?.partial === true

const isWhole = (call: JudgedCall) => succeeded(call) && !isPartial(call)

/** Returns the whole replies to a call, at any time. */
const wholeOf = ({ byKey }: Task, { key }: JudgedCall) => (byKey.get(key) ?? []).filter(isWhole)

const hasWholeAfter = (task: Task, call: JudgedCall) =>
  wholeOf(task, call).some(({ endedAt }) => endedAt >= call.endedAt)
