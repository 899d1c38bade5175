import type { Call, Outcome } from '../../mesh/call.ts'
import type { Clock } from '../../mesh/clock.ts'
import { isObject, paramsOf } from '../../protocol/jsonrpc.ts'
import { createdTask, keptMs, namesTask } from '../../protocol/mcp-task.ts'
import { Owners } from '../shared/owners.ts'
import { taskNotFound } from '../shared/tasks.ts'

/**
 * Whose the tasks of a server are that has no sessions, and so cannot tell callers apart which it knows by the credentials of
 * the gateway alone. A task that nobody here has begun is for the server to judge: it may be older than this process.
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
    const owner = this.#owners.of(paramsOf(call.message.value).taskId)
    return owner === undefined || owner === call.caller.id ? undefined : taskNotFound(call.id)
  }

  /** Takes the outcome of a tool call. */
  learn({ caller }: Call, outcome: Outcome): Outcome {
    const result = outcome.kind === 'answered' ? outcome.result.value.result : undefined
    if (!isObject(result)) return outcome
    const task = createdTask(result)
    if (typeof task?.taskId === 'string') this.#owners.add(task.taskId, caller.id, false, keptMs(task))
    return outcome
  }
}
