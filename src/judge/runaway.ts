import { isAmong } from './contract.ts'
import { type Finding, findingOf, mayReturnAt, type Rule, toolOf } from './rule.ts'
import type { JudgedCall, Task } from './task.ts'

/** Fewest equal calls of a runaway. */
const MANY = 5

/** Finds agents that repeat a call without end, although nothing changes. */
export const runaway: Rule = {
  title: 'repeats a call without end',
  help: 'Five or more calls in a row had the same tool and arguments, one after the other, and equal replies. Polled and repeatable tools of the contract, calls at the same time, and calls that kept the told waiting time do not count. Without a contract a finding is only likely.',
  judge(task) {
    const findings: Finding[] = []
    let isMute = false
    for (const row of rowsOf(task)) {
      const [call] = row
      if (row.length < MANY || call === undefined) continue
      if (row.some(({ replyKey }) => replyKey === undefined)) {
        isMute = true
        continue
      }
      const message = `${row.length} calls of ${toolOf(call)} in a row had the same arguments and equal replies`
      findings.push(findingOf(task.contract === undefined ? 'likely' : 'proven', message, row))
    }
    return isMute && findings.length === 0
      ? { findings, undecided: 'replies of equal calls are not comparable' }
      : { findings }
  },
}

/** Returns the rows of equal calls. A row ends with another call, with another reply, or with a kept waiting time. */
function rowsOf({ calls, contract }: Task): JudgedCall[][] {
  const meant = contract === undefined ? [] : [...contract.polls, ...contract.repeatable]
  const rows: JudgedCall[][] = []
  let row: JudgedCall[] = []
  let reply: string | undefined
  let endedAt = 0
  for (const call of calls) {
    const before = row.at(-1)
    const isEqual = before?.key === call.key
    const isBeside = isEqual && call.beganAt < endedAt
    endedAt = isBeside ? Math.max(endedAt, call.endedAt) : call.endedAt
    // Calls at the same time are one step of the agent.
    if (isBeside) continue
    const isOther = reply !== undefined && call.replyKey !== undefined && call.replyKey !== reply
    if (isEqual && !isOther && !hasWaited(before, call) && !isAmong(meant, call)) row.push(call)
    else {
      row = [call]
      rows.push(row)
      reply = undefined
    }
    reply ??= call.replyKey
  }
  return rows
}

function hasWaited(before: JudgedCall, { beganAt }: JudgedCall): boolean {
  const mayReturn = mayReturnAt(before)
  return mayReturn !== undefined && beganAt >= mayReturn
}
