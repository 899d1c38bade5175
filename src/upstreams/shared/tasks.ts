import type { Call, CallResult, Caller, Message, Outcome, RequestId } from '../../mesh/call.ts'
import type { Clock, Millis } from '../../mesh/clock.ts'
import { elements, locate } from '../../protocol/json-span.ts'
import { errorText, INVALID_PARAMS, isObject, paramsOf } from '../../protocol/jsonrpc.ts'
import { Owners, type Work } from './owners.ts'

/** Where a message says that it belongs to a task. */
export const RELATED_TASK = 'io.modelcontextprotocol/related-task'

/** Requests that name a task. */
const naming: ReadonlySet<string> = new Set(['tasks/get', 'tasks/result', 'tasks/cancel', 'tasks/update'])

/** States of a task that no other follows. */
const terminal: ReadonlySet<unknown> = new Set(['completed', 'failed', 'cancelled'])

/** Whether a request names a task. */
export const namesTask = ({ method }: Call): boolean => naming.has(method)

/** The task that a tool call became, by the word of either era for it. */
export function createdTask(
  result: Readonly<Record<string, unknown>>,
): Readonly<Record<string, unknown>> | undefined {
  if (isObject(result.task)) return result.task
  return result.resultType === 'task' ? result : undefined
}

/** For how long its server keeps a task, in milliseconds, by the word of either era for it; undefined when it does not say. */
export function keptMs({ ttlMs, ttl }: Readonly<Record<string, unknown>>): number | undefined {
  const said = ttlMs ?? ttl
  return typeof said === 'number' ? said : undefined
}

/** A task as an answer tells of it. */
export interface ToldTask {
  readonly id: string
  /** Whether the answer is the first word of it. */
  readonly isNew: boolean
  /** Whether the server may still be at work for it. */
  readonly isOpen: boolean
  readonly keepMs: number | undefined
}

/** Returns the task that an answer tells of; undefined when it tells of no task, or nothing new. */
export function toldTask(method: string, result: Readonly<Record<string, unknown>>): ToldTask | undefined {
  const isNew = method === 'tools/call'
  if (!isNew && !naming.has(method)) return undefined
  const task = isNew ? createdTask(result) : isObject(result.task) ? result.task : result
  // The result of a task is all that is left to come of it.
  const named = method === 'tasks/result' ? relatedTask(result) : task?.taskId
  const isOpen = method !== 'tasks/result' && !terminal.has(task?.status)
  if (task === undefined || typeof named !== 'string' || !(isNew || !isOpen)) return undefined
  return { id: named, isNew, isOpen, keepMs: keptMs(task) }
}

/** The task that a message belongs to, by its own word. */
function relatedTask({ _meta: meta }: Readonly<Record<string, unknown>>): unknown {
  const related = isObject(meta) ? meta[RELATED_TASK] : undefined
  return isObject(related) ? related.taskId : undefined
}

/** What a server says of a task that it does not have. */
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
 * How long a task is taken for one that the process may speak for without naming it, in milliseconds: meanwhile what it asks goes
 * to nobody else. Afterwards it is held to the protocol, which has it name the task.
 */
const LONGEST_OPEN_MS: Millis = 10 * 60_000

/** The tasks that a process has made for those who share it: each is for its caller alone. */
export class Tasks {
  readonly #owners: Owners<Caller>

  constructor(clock: Pick<Clock, 'now'>) {
    this.#owners = new Owners(clock, LONGEST_OPEN_MS)
  }

  /** The refusal of a request that names a task which is not its caller's: as if there were none. */
  refusal({ id, method, caller, message }: Call): Outcome | undefined {
    const isOwn = !naming.has(method) || this.#owners.of(paramsOf(message.value).taskId) === caller
    return isOwn ? undefined : taskNotFound(id)
  }

  /** Takes an answer to a caller's request; gives what of it is for that caller. */
  answered(method: string, caller: Caller, reply: Message): Message {
    const { result } = reply.value
    if (!isObject(result)) return reply
    if (method === 'tasks/list') return this.#onlyOwn(caller, result, reply)
    const told = toldTask(method, result)
    if (told?.isNew) this.#owners.add(told.id, caller, told.isOpen, told.keepMs)
    else if (told !== undefined) this.#owners.over(told.id)
    return reply
  }

  /** Whose the task is that a notification is about, or that a message belongs to; `none` when it names none. */
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

  #onlyOwn(caller: Caller, result: Readonly<Record<string, unknown>>, reply: Message): Message {
    const { tasks } = result
    const span = locate(reply.text, ['result', 'tasks'])
    if (!Array.isArray(tasks) || span === undefined) return reply
    const own = tasks.map((task: unknown) => isObject(task) && this.#owners.of(task.taskId) === caller)
    if (own.every(Boolean)) return reply
    const kept = [...elements(reply.text, span.start)]
      .filter((_, index) => own[index])
      .map(({ start, end }) => reply.text.slice(start, end))
    return {
      text: `${reply.text.slice(0, span.start)}[${kept.join()}]${reply.text.slice(span.end)}`,
      value: { ...reply.value, result: { ...result, tasks: tasks.filter((_, index) => own[index]) } },
    }
  }
}
