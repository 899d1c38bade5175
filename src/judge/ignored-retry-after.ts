import { after, type Finding, findingOf, mayReturnAt, type Rule, succeeded, toolOf } from './rule.ts'
import type { JudgedCall, Task } from './task.ts'

/** Finds agents that return earlier than told. */
export const ignoredRetryAfter: Rule = {
  title: 'returns earlier than told',
  help: 'The agent was told when to try again, and made the same call before nine tenths of this time were over. A call that another replica answered does not count.',
  judge(task) {
    const findings = task.calls.flatMap((call): Finding[] => {
      const early = earlyReturn(task, call)
      if (early === undefined) return []
      const waitedMs = Math.round((early.beganAt - call.endedAt) / 1_000)
      const message = `${toolOf(call)} was called again after ${waitedMs} ms instead of ${call.told?.retryAfterMs} ms`
      return [findingOf('proven', message, [call, early])]
    })
    return { findings }
  },
}

/** Returns the first equal call that came too early; undefined for none. */
function earlyReturn({ byKey }: Task, call: JudgedCall): JudgedCall | undefined {
  const mayReturn = mayReturnAt(call)
  if (mayReturn === undefined) return undefined
  for (const again of after(byKey.get(call.key)!, call)) {
    if (again.beganAt >= mayReturn) return undefined
    if (!isElsewhere(again, call)) return again
    // After a success elsewhere the told time is void.
    if (succeeded(again)) return undefined
  }
  return undefined
}

/** Whether another replica answered the later call. */
const isElsewhere = ({ replica, result }: JudgedCall, before: JudgedCall) =>
  result === 'returned' && replica !== undefined && before.replica !== undefined && replica !== before.replica
