import type { Call, Caller, Message } from '../../mesh/call.ts'
import { isObject, paramsOf } from '../../protocol/jsonrpc.ts'
import { toldTask } from '../../protocol/mcp-task.ts'
import { type ProgressToken, progressTokenOf } from '../../protocol/renumber.ts'
import { shortId } from '../../units/short-id.ts'

/** Most kept progress tokens: of all callers, and per caller. */
const MAX_TOKENS = 10_000
const MAX_OF_CALLER = 1_000

/** A call that became a task. */
interface Begun {
  readonly caller: Caller
  readonly token: ProgressToken
  readonly task: string
}

/**
 * The progress tokens of calls that became tasks, kept until the task's result. Only for callers with sessions. Above
 * the limit, the caller with the most tokens loses its oldest token.
 */
export class TaskProgress {
  /** By the gateway's call ids, which are the server's tokens. */
  readonly #begun = new Map<number, Begun>()
  readonly #ids = new Map<string, number>()
  /** The gateway's call ids of each caller, oldest first. */
  readonly #shares = new Map<Caller, Set<number>>()

  /**
   * Notes a task that begins or ends with the answer to a call. A token stays until the result is fetched, because the
   * server may send queued progress before.
   */
  answered(id: number, call: Call, { result }: Message['value']): void {
    if (call.method === 'tasks/result') {
      const { taskId } = paramsOf(call.message.value)
      return typeof taskId === 'string' ? this.#over(this.#ids.get(shortId(taskId))) : undefined
    }
    const told = isObject(result) ? toldTask(call.method, result) : undefined
    if (told?.isNew !== true) return
    const task = shortId(told.id)
    this.#over(this.#ids.get(task))
    const token = progressTokenOf(call)
    if (!told.isOpen || token === undefined || call.caller.era === 'modern') return
    const share = this.#shares.get(call.caller) ?? new Set()
    this.#makeRoom(share)
    this.#shares.set(call.caller, share.add(id))
    this.#begun.set(id, { caller: call.caller, token, task })
    this.#ids.set(task, id)
  }

  get(id: number): Begun | undefined {
    return this.#begun.get(id)
  }

  left(caller: Caller): void {
    for (const id of this.#shares.get(caller) ?? []) this.#over(id)
  }

  #makeRoom(share: ReadonlySet<number>): void {
    let largest = share
    if (share.size < MAX_OF_CALLER) {
      if (this.#begun.size < MAX_TOKENS) return
      for (const other of this.#shares.values()) if (other.size > largest.size) largest = other
    }
    const [oldest] = largest
    this.#over(oldest)
  }

  #over(id: number | undefined): void {
    const begun = id === undefined ? undefined : this.#begun.get(id)
    if (id === undefined || begun === undefined) return
    this.#begun.delete(id)
    this.#ids.delete(begun.task)
    const share = this.#shares.get(begun.caller)
    share?.delete(id)
    if (share?.size === 0) this.#shares.delete(begun.caller)
  }
}
