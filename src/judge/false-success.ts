import { names } from './contract.ts'
import { endedUnknown, type Finding, findingOf, lookAfter, type Rule, succeeded, toolOf } from './rule.ts'
import type { JudgedCall, Task } from './task.ts'

/** Finds tasks that were reported as a success, although a needed call failed. */
export const falseSuccess: Rule = {
  title: 'reports a success that is none',
  help: 'The task was reported as `succeeded`. Proven: a tool that must run by the contract was never called, or failed for good. Likely: the last write of the task failed. A failed call does not count if an equal call succeeded.',
  judge(task) {
    const { calls, outcome, contract } = task
    if (outcome === undefined) return { findings: [], undecided: 'no outcome was reported' }
    if (outcome !== 'succeeded') return { findings: [] }
    const needed = (contract?.mustRun ?? []).map((name) => neededRun(task, name))
    const findings = needed.flatMap(({ findings }) => findings)
    const last = calls.findLast(({ effect }) => effect === 'write' || effect === 'idempotent')
    if (
      findings.length === 0 &&
      last !== undefined &&
      failedForGood(task, last) &&
      !mayHaveWorked(task, last)
    )
      findings.push(findingOf('likely', `the last write, ${toolOf(last)}, failed`, [last]))
    if (findings.length > 0) return { findings }
    const undecided =
      contract?.mustRun === undefined
        ? 'no contract says which tools must run'
        : needed.find(({ undecided }) => undecided !== undefined)?.undecided
    return undecided === undefined ? { findings } : { findings, undecided }
  },
}

/** Judges the calls of one tool that must run. */
function neededRun(
  task: Task,
  name: string,
): { readonly findings: readonly Finding[]; readonly undecided?: string } {
  const runs = task.calls.filter((call) => names(name, call))
  if (runs.length === 0) {
    const [last] = task.calls.slice(-1)
    if (!task.isWhole || last === undefined)
      return { findings: [], undecided: 'calls of the task are missing' }
    return { findings: [findingOf('proven', `${name} must run, and was never called`, [last])] }
  }
  const good = new Set(runs.filter(succeeded).map(({ key }) => key))
  let undecided: string | undefined
  for (const call of runs) {
    if (succeeded(call) || good.has(call.key)) continue
    if (mayHaveWorked(task, call)) {
      undecided = 'a call that must run may have run'
      continue
    }
    // An agent may ask again with better arguments.
    if (isOwnMistake(call) && good.size > 0) continue
    return {
      findings: [
        findingOf(good.size > 0 ? 'likely' : 'proven', `${toolOf(call)} must run, and failed`, [call]),
      ],
    }
  }
  return { findings: [], ...(undecided !== undefined && { undecided }) }
}

/** Whether a call failed, and no equal call succeeded. */
const failedForGood = ({ byKey }: Task, call: JudgedCall) =>
  !succeeded(call) && byKey.get(call.key)?.some(succeeded) !== true

/** Whether a call or an equal call has perhaps run, and its agent has looked at the server afterwards. */
const mayHaveWorked = ({ calls, byKey }: Task, { key }: JudgedCall) =>
  byKey.get(key)?.some((one) => endedUnknown(one) && lookAfter(calls, one) === 'looked') === true

const isOwnMistake = ({ result, invalid }: JudgedCall) => result === 'caller_error' || invalid === true
