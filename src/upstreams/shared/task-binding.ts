import type { Call, Caller, Message, Outcome } from '../../mesh/call.ts'
import type { Clock } from '../../mesh/clock.ts'
import { isObject, paramsOf } from '../../protocol/jsonrpc.ts'
import { createdTask, keptMs, namesTask, TASK_STATUS } from '../../protocol/mcp-task.ts'
import { Owners } from './owners.ts'
import { listedTasks, taskNotFound } from './tasks.ts'

/**
 * The owners of the tasks of a server without sessions. Such a server knows only the gateway's credentials, and cannot tell callers
 * apart. The server itself judges requests for a task that nobody here has begun: the task may be older than this process.
 */
export class TaskBinding {
  /** By the id of the caller, which is the same for a client without a session when it comes again. */
  readonly #owners: Owners<string>

  constructor(clock: Pick<Clock, 'now'>) {
    this.#owners = new Owners(clock)
  }

  /** The answer to a request that names another caller's task: as if there were none. */
  refusal(call: Call): Outcome | undefined {
    if (!namesTask(call.method)) return undefined
    return this.#isShown(call.caller, paramsOf(call.message.value).taskId) ? undefined : taskNotFound(call.id)
  }

  /** Notes the task that a tool call became. Returns the outcome, and for `tasks/list` without the tasks of other callers. */
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

  /** Whether a notification that came to a caller is not about the task of another caller. */
  mayHear(caller: Caller, { value }: Message): boolean {
    return value.method !== TASK_STATUS || this.#isShown(caller, paramsOf(value).taskId)
  }

  #isShown(caller: Caller, taskId: unknown): boolean {
    const owner = this.#owners.of(taskId)
    return owner === undefined || owner === caller.id
  }
}
