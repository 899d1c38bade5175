import type { Call, Outcome } from '../mesh/call.ts'
import { type CallCounts, countCall as countIn } from '../mesh/classify.ts'
import { never } from '../mesh/cancel.ts'
import type { Clock, Millis } from '../mesh/clock.ts'
import { type AgentModel, isTrue, type Step, type TaskEnd } from './agents.ts'
import type { SimulatedGateway } from './gateway.ts'

export interface Workload {
  readonly tasks: number
  /** Returns the calls of a task, in order. The agent makes no further calls after it gave up. */
  readonly stepsOf: (task: number) => readonly Step[]
  readonly agent: AgentModel
  /** Number of concurrent tasks. Default: 1. */
  readonly concurrency?: number
  /** Returns the earliest start of a task, in milliseconds after the run's start. Default: 0. */
  readonly beginsAt?: (task: number) => Millis
  /** Minimum duration of a step, in milliseconds, for an error as well as for an answer. Default: 0. */
  readonly stepMs?: Millis
  readonly onTask?: (task: number, end: TaskEnd) => void
}

/** Counts of calls and tasks. Calls are judged like the SLIs of live traffic: see `mesh/classify`. */
export interface Tally extends CallCounts {
  tasks: number
  attempts: number
  /** Calls with a wrong answer that looks right, so it misleads an agent. */
  misled: number
  /** Number of tasks with a failed call or a misleading answer. */
  failedTasks: number
  readonly ends: Record<TaskEnd, number>
}

export const newTally = (): Tally => ({
  tasks: 0,
  calls: 0,
  valid: 0,
  eligible: 0,
  returned: 0,
  good: 0,
  unchecked: 0,
  attempts: 0,
  misled: 0,
  failedTasks: 0,
  ends: { succeeded: 0, failed_safely: 0, failed_silently: 0 },
})

/** Service level indicators of a run. Without any calls, a share of good calls is 1, and a share of bad calls is 0. */
export interface Slis {
  readonly tcaf: number
  readonly tcsr: number
  /** Effective tool availability: `tcsr` without calls rejected by the gateway. */
  readonly eta: number
  /** Share of replies that could not be checked; they count as good. */
  readonly unchecked: number
  readonly blastRadius: number
}

export function slisOf({
  tasks,
  calls,
  valid,
  eligible,
  returned,
  good,
  unchecked,
  failedTasks,
}: Tally): Slis {
  const share = (part: number, whole: number, none: number) => (whole === 0 ? none : part / whole)
  return {
    tcaf: share(calls, tasks, 0),
    tcsr: share(good, valid, 1),
    eta: share(good, eligible, 1),
    unchecked: share(unchecked, returned, 0),
    blastRadius: share(failedTasks, tasks, 0),
  }
}

/** Counts a finished call. Returns true when the call went wrong. */
export function countCall(tally: Tally, { record }: Pick<Call, 'record'>, outcome: Outcome): boolean {
  tally.attempts += record.attempts
  return countIn(tally, outcome, record)
}

/** Runs all tasks through a gateway, and counts into `tally`. */
export async function runTasks(
  gateway: SimulatedGateway,
  clock: Clock,
  { tasks, stepsOf, agent, concurrency = 1, beginsAt, stepMs = 0, onTask }: Workload,
  tally: Tally,
): Promise<void> {
  let next = 0
  async function work(): Promise<void> {
    for (let task = next++; task < tasks; task = next++) {
      const waitMs = (beginsAt?.(task) ?? 0) - clock.now()
      if (waitMs > 0) await clock.sleep(waitMs, never)
      const end = await runTask(task)
      tally.tasks++
      tally.ends[end]++
      onTask?.(task, end)
    }
  }

  async function runTask(task: number): Promise<TaskEnd> {
    const intent = `task ${task}`
    let hasFailed = false
    let isMisled = false
    let isIncomplete = false
    let gaveUp = false
    for (const step of stepsOf(task)) {
      const { server: name, tool, args } = step
      const server = gateway.servers.get(name)!
      const endsAt = clock.now() + stepMs
      for (let tries = 1; ; tries++) {
        const { call, outcome: ended } = gateway.begin({ server: name, tool, args, intent })
        const outcome = await ended
        const isWrong = countCall(tally, call, outcome)
        const reaction = agent.react(outcome, step, tries, server)
        const isFalse = typeof reaction === 'object' && !isTrue(outcome, reaction.value, step, server)
        if (isFalse && !isWrong) tally.misled++
        isMisled ||= isFalse
        hasFailed ||= isWrong || isFalse
        gaveUp = reaction === 'give_up'
        isIncomplete ||= gaveUp || reaction === 'go_on'
        if (reaction !== 'again') break
      }
      if (clock.now() < endsAt) await clock.sleep(endsAt - clock.now(), never)
      if (gaveUp) break
    }
    if (hasFailed) tally.failedTasks++
    if (isMisled) return 'failed_silently'
    return isIncomplete ? 'failed_safely' : 'succeeded'
  }

  await Promise.all(Array.from({ length: Math.min(concurrency, tasks) }, work))
}

/**
 * Returns the share of tasks with a failed call, if each of `calls` calls per task fails independently with this
 * probability: 1 − (1 − p)ⁿ.
 */
export const predictedRadius = (probability: number, calls: number): number => 1 - (1 - probability) ** calls
