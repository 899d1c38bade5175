import { isObject } from './jsonrpc.ts'

/** Where a message says that it belongs to a task. */
export const RELATED_TASK = 'io.modelcontextprotocol/related-task'

/** The notification that tells of a task. */
export const TASK_STATUS = 'notifications/tasks/status'

/** Requests that name a task. */
const naming: ReadonlySet<string> = new Set(['tasks/get', 'tasks/result', 'tasks/cancel', 'tasks/update'])

/** States of a task that no other follows. */
export const terminal: ReadonlySet<unknown> = new Set(['completed', 'failed', 'cancelled'])

/** Whether a request names a task. */
export const namesTask = (method: string): boolean => naming.has(method)

/** The task that a tool call became, by the word of either era for it. */
export function createdTask(
  result: Readonly<Record<string, unknown>>,
): Readonly<Record<string, unknown>> | undefined {
  if (isObject(result.task)) return result.task
  return result.resultType === 'task' ? result : undefined
}

/** For how long its server keeps a task, in milliseconds, by the word of either era for it; undefined for no limit. */
export function keptMs({ ttlMs, ttl }: Readonly<Record<string, unknown>>): number | undefined {
  const said = ttlMs ?? ttl
  // Some servers keep a task with a `ttl` of 0 for ever.
  return typeof said === 'number' && said > 0 ? said : undefined
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
