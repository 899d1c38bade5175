import type { Call, CallResult, Caller, Message, Outcome, RequestId } from '../../mesh/call.ts'
import type { Clock, Millis } from '../../mesh/clock.ts'
import { elements, locate } from '../../protocol/json-span.ts'
import { errorText, INVALID_PARAMS, isObject, paramsOf } from '../../protocol/jsonrpc.ts'
import { namesTask, RELATED_TASK, terminal, toldTask } from '../../protocol/mcp-task.ts'
import { Owners, type Work } from './owners.ts'

/** Returns the answer that a server gives for an unknown task. */
export function taskNotFound(id: RequestId): Outcome {
  const error = { code: INVALID_PARAMS, message: 'Failed to retrieve task: Task not found' }
  const result: CallResult = {
    text: errorText(id, error.code, error.message),
    value: { jsonrpc: '2.0', id, error },
    status: 200,
  }
  return { kind: 'answered', result, verdict: 'unchecked' }
}

/**
 * How long a process may send requests for an open task without naming the task, in milliseconds. During this time,
 * such requests go to no other caller. Afterwards, the process must name the task, as the protocol demands.
 */
const LONGEST_OPEN_MS: Millis = 10 * 60_000

/** The tasks of a shared process: each belongs to its caller alone. */
export class Tasks {
  readonly #owners: Owners<Caller>

  constructor(clock: Pick<Clock, 'now'>) {
    this.#owners = new Owners(clock, LONGEST_OPEN_MS)
  }

  /** Refuses a request about another caller's task, as if the task did not exist. */
  refusal({ id, method, caller, message }: Call): Outcome | undefined {
    const isOwn = !namesTask(method) || this.#owners.of(paramsOf(message.value).taskId) === caller
    return isOwn ? undefined : taskNotFound(id)
  }

  /** Notes the tasks in an answer to a caller's request; removes other callers' tasks from a `tasks/list`. */
  answered(method: string, caller: Caller, reply: Message): Message {
    const { result } = reply.value
    if (!isObject(result)) return reply
    if (method === 'tasks/list') return listedTasks(reply, (id) => this.#owners.of(id) === caller)
    const told = toldTask(method, result)
    if (told?.isNew) this.#owners.add(told.id, caller, told.isOpen, told.keepMs)
    else if (told !== undefined) this.#owners.over(told.id)
    return reply
  }

  /** Returns the owner of a message's task; undefined without a known owner, `none` when the message names no task. */
  ownerFor({ value }: Message): Caller | undefined | 'none' {
    const params = paramsOf(value)
    const related = isObject(params._meta) ? params._meta[RELATED_TASK] : undefined
    if (isObject(related)) return this.#owners.of(related.taskId)
    if (!(value.method as string).startsWith('notifications/tasks')) return 'none'
    if (terminal.has(params.status)) this.#owners.over(params.taskId)
    return this.#owners.of(params.taskId)
  }

  working(): ReturnType<Owners<Caller>['working']> {
    return this.#owners.working()
  }

  work(): Work<Caller> {
    return this.#owners.work()
  }

  left(caller: Caller): void {
    this.#owners.left(caller)
  }
}

/** Returns a reply to `tasks/list` without the tasks refused by `isShown`. */
export function listedTasks({ text, value }: Message, isShown: (taskId: unknown) => boolean): Message {
  const { result } = value
  const tasks = isObject(result) ? result.tasks : undefined
  const span = locate(text, ['result', 'tasks'])
  if (!Array.isArray(tasks) || span === undefined) return { text, value }
  const shown = tasks.map((task: unknown) => isObject(task) && isShown(task.taskId))
  if (shown.every(Boolean)) return { text, value }
  const kept = [...elements(text, span.start)]
    .filter((_, index) => shown[index])
    .map(({ start, end }) => text.slice(start, end))
  return {
    text: `${text.slice(0, span.start)}[${kept.join()}]${text.slice(span.end)}`,
    value: {
      ...value,
      result: { ...(result as object), tasks: tasks.filter((_, index) => shown[index]) },
    },
  }
}
