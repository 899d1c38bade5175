import { isObject } from './jsonrpc.ts'

export const RELATED_TASK = 'io.modelcontextprotocol/related-task'

export const TASK_STATUS = 'notifications/tasks/status'

const naming: ReadonlySet<string> = new Set(['tasks/get', 'tasks/result', 'tasks/cancel', 'tasks/update'])

/** Final states of a task. */
export const terminal: ReadonlySet<unknown> = new Set(['completed', 'failed', 'cancelled'])

export const namesTask = (method: string): boolean => naming.has(method)

/** Returns the task created by a tool call, in the format of either era. */
export function createdTask(
  result: Readonly<Record<string, unknown>>,
): Readonly<Record<string, unknown>> | undefined {
  if (isObject(result.task)) return result.task
  return result.resultType === 'task' ? result : undefined
}

/** Returns how long the server keeps a task, in milliseconds, by the field of either era; undefined for no limit. */
export function keptMs({ ttlMs, ttl }: Readonly<Record<string, unknown>>): number | undefined {
  const said = ttlMs ?? ttl
  // Some servers keep a task with a `ttl` of 0 for ever.
  return typeof said === 'number' && said > 0 ? said : undefined
}

export interface ToldTask {
  readonly id: string
  /** Whether the answer is the first to mention the task. */
  readonly isNew: boolean
  /** Whether the server may still work on the task. */
  readonly isOpen: boolean
  readonly keepMs: number | undefined
}

/** Returns a new task or a finished task from an answer; undefined for any other answer. */
export function toldTask(method: string, result: Readonly<Record<string, unknown>>): ToldTask | undefined {
  const isNew = method === 'tools/call'
  if (!isNew && !naming.has(method)) return undefined
  const task = isNew ? createdTask(result) : isObject(result.task) ? result.task : result
  // A server sends nothing more about a task after its result.
  const named = method === 'tasks/result' ? relatedTask(result) : task?.taskId
  const isOpen = method !== 'tasks/result' && !terminal.has(task?.status)
  if (task === undefined || typeof named !== 'string' || !(isNew || !isOpen)) return undefined
  return { id: named, isNew, isOpen, keepMs: keptMs(task) }
}

function relatedTask({ _meta: meta }: Readonly<Record<string, unknown>>): unknown {
  const related = isObject(meta) ? meta[RELATED_TASK] : undefined
  return isObject(related) ? related.taskId : undefined
}
