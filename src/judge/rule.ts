import { wasTurnedDown } from '../mesh/classify.ts'
import type { JudgedCall, Place, Task } from './task.ts'

/** `proven`: the recording shows the mistake. `likely`: another explanation is possible. */
export type Level = 'proven' | 'likely'

/** A mistake of an agent. */
export interface Finding {
  readonly level: Level
  /** One sentence, without text of agents or servers. */
  readonly message: string
  /** The lines of the calls, the decisive call last. */
  readonly calls: readonly Place[]
  /** The fault that the agent met, as `name (type)`; absent for none. */
  readonly fault?: string
}

/** The judgement of a rule on a task. A task without a finding is clean, unless the rule lacks input. */
export interface Judgement {
  readonly findings: readonly Finding[]
  /** Why the rule cannot tell; undefined when the rule can. */
  readonly undecided?: string
}

export interface Rule {
  /** The mistake in a few words. */
  readonly title: string
  /** When the rule finds something, and when never: for people who see a finding. */
  readonly help: string
  judge(task: Task): Judgement
}

/** Returns a finding about calls, the decisive call last. */
export function findingOf(level: Level, message: string, calls: readonly JudgedCall[]): Finding {
  const fault = calls
    .flatMap(({ faults = [] }) => faults)
    .find(({ fate }) => fate !== 'masked' && fate !== 'not_reached')
  return {
    level,
    message,
    calls: calls.map(({ place }) => place),
    ...(fault !== undefined && { fault: `${fault.name} (${fault.type})` }),
  }
}

/** Returns a tool by its full name. */
export const toolOf = ({ server, tool }: JudgedCall): string => `${server}/${tool}`

/** Whether the agent got a good answer. */
export const succeeded = ({ result, wrong, verdict }: JudgedCall): boolean =>
  result === 'returned' && wrong !== true && verdict !== 'tool_error' && verdict !== 'rpc_error'

/** Whether the agent cannot know if the call has run. */
export const endedUnknown = (call: JudgedCall): boolean =>
  call.told?.sent === true && !succeeded(call) && !wasTurnedDown({ reason: call.reason ?? '' })

/** Yields the calls that begin after a call has ended. `calls` are in the order of their begins. */
export function* after(calls: readonly JudgedCall[], { endedAt }: JudgedCall): Iterable<JudgedCall> {
  let [low, high] = [0, calls.length]
  while (low < high) {
    const middle = (low + high) >>> 1
    if (calls[middle]!.beganAt < endedAt) low = middle + 1
    else high = middle
  }
  for (; low < calls.length; low++) yield calls[low]!
}

/** The look of an agent at a server between two calls. */
export type Look =
  /** A tool that only reads has answered. */
  | 'looked'
  /** A read got no answer, or a tool of unknown effect has answered. */
  | 'perhaps'
  | 'none'

/** Returns how the agent looked at a call's server after the call, and before another call if one is given. */
export function lookAfter(calls: readonly JudgedCall[], call: JudgedCall, before?: JudgedCall): Look {
  let look: Look = 'none'
  for (const one of after(calls, call)) {
    if (before !== undefined && one.beganAt > before.beganAt) break
    if (one.server !== call.server || (before !== undefined && one.endedAt > before.beganAt)) continue
    if (one.effect === 'read_only' && succeeded(one)) return 'looked'
    const mayRead = one.effect === 'unknown' && one.key !== call.key && succeeded(one)
    if (mayRead || one.effect === 'read_only') look = 'perhaps'
  }
  return look
}

/** The tolerance of a told waiting time: agents' clocks differ, and timers are inexact. */
const KEPT = 0.9

/** Returns when a call with these arguments may come again, in microseconds; undefined when the agent was not told. */
export function mayReturnAt({ told, endedAt }: JudgedCall): number | undefined {
  const { retryAfterMs } = told ?? {}
  return retryAfterMs === undefined ? undefined : endedAt + Math.round(retryAfterMs * 1_000 * KEPT)
}
