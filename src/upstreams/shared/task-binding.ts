import type { Call, Caller, Message, Outcome } from '../../mesh/call.ts'
import type { Clock } from '../../mesh/clock.ts'
import { isObject, paramsOf } from '../../protocol/jsonrpc.ts'
import { createdTask, keptMs, namesTask, TASK_STATUS } from '../../protocol/mcp-task.ts'
import { Owners } from './owners.ts'
import { listedTasks, taskNotFound } from './tasks.ts'

/**
 * The owners of tasks at a server without sessions. Such a server knows only the gateway's credentials and cannot tell
 * callers apart. The server itself judges requests for unknown tasks: a task may be older than this process.
 */
export class TaskBinding {
  /** By caller id, which stays the same for a returning client without a session. */
  readonly #owners: Owners<string>

  constructor(clock: Pick<Clock, 'now'>) {
    this.#owners = new Owners(clock)
  }

  /** Refuses a request about another caller's task, as if the task did not exist. */
  refusal(call: Call): Outcome | undefined {
    if (!namesTask(call.method)) return undefined
    return this.#isShown(call.caller, paramsOf(call.message.value).taskId) ? undefined : taskNotFound(call.id)
  }

  /** Notes the task that a tool call created. Returns the outcome; removes other callers' tasks from a `tasks/list`. */
  answered<Ended extends Outcome>(call: Call, outcome: Ended): Ended {
    if (outcome.kind !== 'answered') return outcome
    const { result } = outcome
    if (call.method === 'tasks/list')
      return {
        ...outcome,
        result: { ...result, ...listedTasks(result, (id) => this.#isShown(call.caller, id)) },
      }
    if (call.tool === undefined || !isObject(result.value.result)) return outcome
    const task = createdTask(result.value.result)
    if (typeof task?.taskId === 'string') this.#owners.add(task.taskId, call.caller.id, false, keptMs(task))
    return outcome
  }

  /** Whether a caller may see a notification; false if it is about another caller's task. */
  mayHear(caller: Caller, { value }: Message): boolean {
    return value.method !== TASK_STATUS || this.#isShown(caller, paramsOf(value).taskId)
  }

  #isShown(caller: Caller, taskId: unknown): boolean {
    const owner = this.#owners.of(taskId)
    return owner === undefined || owner === caller.id
  }
}
