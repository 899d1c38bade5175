import { isAmong } from './contract.ts'
import { endedUnknown, type Finding, findingOf, lookAfter, type Rule, toolOf } from './rule.ts'
import type { JudgedCall, Task } from './task.ts'

/** Finds agents that write the same twice. */
export const duplicateWrite: Rule = {
  title: 'writes the same twice',
  help: 'A write with the same tool and arguments ran twice. Answers of the idempotency store and repeatable tools of the contract do not count. If one of the two writes ended without a good answer, or without a contract, the finding is only likely.',
  judge(task) {
    const findings: Finding[] = []
    let undecided: string | undefined
    for (const calls of writesOf(task)) {
      const ran = calls.filter((call) => hasRun(call) === 'yes')
      const [first, second] = ran
      const isUnknown = calls[0]?.effect === 'unknown'
      const open = first === undefined ? undefined : openBeside(task, calls, first)
      if (first === undefined || (second === undefined && open === undefined)) {
        const maybe = calls.filter((call) => hasRun(call) === 'maybe')
        if (first === undefined && maybe.length > 1) undecided ??= 'two equal writes ended without an answer'
      } else if (isUnknown) undecided ??= 'the effect of a repeated tool is unknown'
      else if (second !== undefined)
        findings.push(
          findingOf(
            task.contract === undefined ? 'likely' : 'proven',
            `${toolOf(first)} ran ${ran.length} times with the same arguments`,
            ran,
          ),
        )
      else if (open !== undefined)
        findings.push(
          findingOf(
            'likely',
            `${toolOf(first)} ran, and an equal call may have run too`,
            [open, first].sort(inTime),
          ),
        )
    }
    return { findings, ...(findings.length === 0 && undecided !== undefined && { undecided }) }
  },
}

const inTime = (one: JudgedCall, other: JudgedCall) => one.beganAt - other.beganAt

/** Returns the calls of each write that came more than once, without those that the contract allows. */
function writesOf({ byKey, contract }: Task): (readonly JudgedCall[])[] {
  const meant = contract === undefined ? [] : [...contract.repeatable, ...contract.polls]
  return [...byKey.values()].filter(([call, second]) => {
    if (call === undefined || second === undefined || isAmong(meant, call)) return false
    return call.effect === 'write' || call.effect === 'unknown'
  })
}

/**
 * Returns a call that may have run as well as `ran`; undefined when there is none. Two calls with idempotency keys run
 * once, and an agent that has looked at the server knows that its write did not run.
 */
function openBeside(
  { calls: all }: Task,
  calls: readonly JudgedCall[],
  ran: JudgedCall,
): JudgedCall | undefined {
  return calls.find((call) => {
    if (hasRun(call) !== 'maybe' || (call.idem === true && ran.idem === true)) return false
    return call.beganAt > ran.beganAt || lookAfter(all, call, ran) !== 'looked'
  })
}

/** Whether a write has run. */
function hasRun(call: JudgedCall): 'yes' | 'maybe' | 'no' {
  const { attempts, faults = [], replay, result, told, verdict } = call
  if (replay === true || told?.sent === false) return 'no'
  const answered = attempts.some(
    ({ outcome, verdict, server }) =>
      server === undefined && outcome === 'returned' && verdict !== 'tool_error',
  )
  if (endedUnknown(call) && result !== 'returned') {
    // A fault above the policies loses good answers on their way to the agent.
    return answered && faults.some(({ side }) => side === 'client') ? 'yes' : 'maybe'
  }
  if (result !== 'returned' || verdict === 'tool_error' || verdict === 'rpc_error') return 'no'
  // Another tool or a stored copy has answered.
  if (told?.partial === true && !answered) return 'no'
  // A fault can make a success of an error.
  return faults.some(({ fate }) => fate === 'escaped') ? 'maybe' : 'yes'
}
