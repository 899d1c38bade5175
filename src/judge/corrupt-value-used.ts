import { type Finding, findingOf, type Rule, toolOf } from './rule.ts'
import type { JudgedCall } from './task.ts'

/** Finds agents that work on with a value that a fault has made up. */
export const corruptValueUsed: Rule = {
  title: 'uses a corrupt value',
  help: 'A fault put a value into a reply without a trace (fate `escaped`), and the value came back in the arguments of a later call. A value that an unharmed reply held before does not count. For a call that only reads, the finding is only likely: the agent may check the value.',
  judge({ calls }) {
    const findings: Finding[] = []
    const planted = firstBy(calls.filter(isHarmed), ({ canaries = [] }) => canaries)
    // A reply that only repeats a value of its call is no source of the value.
    const clean = firstBy(calls, ({ clean = [], uses = [] }) =>
      clean.filter((value) => !uses.includes(value)),
    )
    const unwatched = firstBy(calls, ({ unwatched }) => (unwatched === true ? [''] : []))
    for (const call of calls) {
      for (const value of call.uses ?? []) {
        const source = planted.get(value)
        const other = clean.get(value)
        if (source === undefined || source.endedAt > call.beganAt) continue
        if (other !== undefined && other.endedAt <= call.beganAt) continue
        const isOpen = other !== undefined || (unwatched.get('')?.beganAt ?? Infinity) <= call.beganAt
        const level = call.effect === 'read_only' || isOpen ? 'likely' : 'proven'
        const message = `${toolOf(call)} was called with a value that a fault had put into the reply of ${toolOf(source)}`
        findings.push(findingOf(level, message, [source, call]))
        break
      }
    }
    const isMute = findings.length === 0 && hasDoubts(calls)
    return isMute
      ? { findings, undecided: 'the values of a fault are not known, or were not followed' }
      : { findings }
  },
}

const isEscaped = ({ faults }: JudgedCall) => faults?.some(({ fate }) => fate === 'escaped') === true

const isHarmed = (call: JudgedCall) => call.faults === undefined || isEscaped(call)

/** Returns the call with each value that ended first. */
function firstBy(
  calls: readonly JudgedCall[],
  valuesOf: (call: JudgedCall) => readonly string[],
): ReadonlyMap<string, JudgedCall> {
  const first = new Map<string, JudgedCall>()
  for (const call of calls)
    for (const value of valuesOf(call))
      if ((first.get(value)?.endedAt ?? Infinity) > call.endedAt) first.set(value, call)
  return first
}

/** Whether later calls may use values of a fault unseen. */
function hasDoubts(calls: readonly JudgedCall[]): boolean {
  const lastAt = calls.at(-1)?.beganAt ?? 0
  const unwatchedAt = calls.findLast(({ unwatched }) => unwatched === true)?.beganAt ?? -Infinity
  const known = new Set<string>()
  for (const { canaries, replyKey } of calls)
    if (canaries !== undefined && replyKey !== undefined) known.add(replyKey)
  return calls.some((call) => {
    if (!isEscaped(call)) return false
    // A stored reply only repeats the values of the reply before.
    const isCopy = call.replay === true && known.has(call.replyKey ?? '')
    const isMute = (call.canaries === undefined && !isCopy) || call.moreCanaries !== undefined
    return (isMute ? lastAt : unwatchedAt) >= call.endedAt
  })
}
