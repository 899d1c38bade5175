import { isAmong } from './contract.ts'
import {
  after,
  endedUnknown,
  type Finding,
  findingOf,
  lookAfter,
  type Rule,
  succeeded,
  toolOf,
} from './rule.ts'
import type { JudgedCall, Task } from './task.ts'

/** Finds agents that repeat a write without a look whether the write has run. */
export const blindRetry: Rule = {
  title: 'repeats a write blindly',
  help: 'A write ended with `sent: true`, so nobody knows whether the write has run. The agent then repeated the write without an idempotency key, and without a read of the same server in between. Calls with `sent: false`, idempotent tools and repeatable tools of the contract do not count.',
  judge(task) {
    const findings: Finding[] = []
    let undecided: string | undefined
    for (const call of task.calls) {
      if (!mayHaveRun(call) || isMeant(task, call)) continue
      const again = nextRun(task, call)
      if (again === undefined || (call.idem === true && again.idem === true)) continue
      const look = lookAfter(task.calls, call, again)
      if (look === 'looked') continue
      if (call.effect === 'unknown') undecided ??= 'the effect of a repeated tool is unknown'
      else if (call.told?.sent === undefined) undecided ??= 'the end of a repeated write is not recorded'
      else {
        const isSure = look === 'none' && task.isWhole && again.idem !== true
        const message = `${toolOf(call)} may have run, and was called again without a look`
        findings.push(findingOf(isSure ? 'proven' : 'likely', message, [call, again]))
      }
    }
    return { findings, ...(findings.length === 0 && undecided !== undefined && { undecided }) }
  },
}

/** Returns the next equal call that may have run; a keyed call that was not sent is no repetition yet. */
function nextRun({ byKey }: Task, call: JudgedCall): JudgedCall | undefined {
  for (const again of after(byKey.get(call.key)!, call))
    if (again.idem !== true || again.told?.sent !== false) return again
  return undefined
}

/** Whether a call may have written something without the agent's knowledge. */
function mayHaveRun(call: JudgedCall): boolean {
  if (call.effect !== 'write' && call.effect !== 'unknown') return false
  if (call.told?.sent !== undefined) return endedUnknown(call)
  return !succeeded(call) && isWithoutAnswer(call)
}

const isWithoutAnswer = ({ result }: JudgedCall) =>
  result === 'timeout' || result === 'transport_error' || result === 'cancelled'

const isMeant = ({ contract }: Task, call: JudgedCall) =>
  contract !== undefined && isAmong([...contract.repeatable, ...contract.polls], call)
