import type { Call, Outcome } from '../mesh/call.ts'
import { verdictOf } from '../mesh/classify.ts'
import type { Clock, Millis } from '../mesh/clock.ts'
import { gatewayError } from '../mesh/errors.ts'
import { type Expiry, ExpiryQueue } from '../mesh/time-limit.ts'
import { INTERNAL_ERROR, INVALID_PARAMS, isObject, paramsOf } from '../protocol/jsonrpc.ts'
import { createdTask, namesTask } from '../protocol/mcp-task.ts'
import { shortId } from '../units/short-id.ts'

/**
 * Most calls held until their MCP task ends. Beyond this, ends the oldest held call of the tenant with the most calls.
 */
const MAX_HELD = 2_000

/** The largest number of held calls with the same task. */
const MAX_OF_TASK = 100

/** Time without a request about a task, in milliseconds, after which no agent is assumed to wait for the task. */
const FORGOTTEN_MS: Millis = 10 * 60_000

/** Returns the id of the MCP task that a tool call became; undefined when its answer is its result. */
export function acceptedTask({ message }: Pick<Call, 'message'>, outcome: Outcome): string | undefined {
  if (outcome.kind !== 'answered') return undefined
  const { result } = outcome.result.value
  if (!isObject(result) || 'content' in result || 'isError' in result) return undefined
  // In the legacy era, only a call that asks for a task can become a task.
  if (result.resultType !== 'task' && (result.task === undefined || !isObject(paramsOf(message.value).task)))
    return undefined
  const id = createdTask(result)?.taskId
  return typeof id === 'string' ? id : undefined
}

/** The outcome of a call whose task's end is not known. */
const accepted: Outcome = {
  kind: 'answered',
  result: { text: '', value: {}, status: 200 },
  verdict: 'unchecked',
}

/** The calls that a server has accepted as one MCP task. */
interface Held {
  readonly tool: string
  readonly tenant: string
  /** Key of the task by tenant, server and task id, the same in all sessions. */
  readonly shared: string
  readonly settles: ((outcome: Outcome) => void)[]
  expiry: Expiry
}

/**
 * Holds calls that became MCP tasks, so that metrics count a call with the end of its task. The call ends when the
 * agent fetches the task's result, or is told that the task failed or was cancelled. After 10 minutes without a request
 * about the task, the call ends with the outcome `returned` and the verdict `unchecked`.
 */
export class TaskCalls {
  /** The held calls by caller, server and task. */
  readonly #held = new Map<string, Held>()
  /** The keys of each tenant; the task whose last request is the oldest comes first. */
  readonly #keysOf = new Map<string, Set<string>>()
  /** The tenants by their number of held calls; `#most` is the highest number. */
  readonly #tenantsWith = new Map<number, Set<string>>()
  #most = 0
  /** The latest key by tenant, server and task, because an agent may ask for the task in another session. */
  readonly #latest = new Map<string, string>()
  readonly #expiries: ExpiryQueue

  constructor(clock: Clock) {
    this.#expiries = new ExpiryQueue(clock, FORGOTTEN_MS)
  }

  /** Holds a tool call that became a task. Calls `settle` once, with the outcome of the task. */
  hold(call: Call, id: string, outcome: Outcome, settle: (outcome: Outcome) => void): void {
    const end = outcome.kind === 'answered' ? toldEnd(outcome) : undefined
    if (end !== undefined) return settle(end)
    const key = keyOf(call, id)
    // Another call may have the same task: a joined call, or a call with a cached answer.
    const known = this.#held.get(key)
    if (known !== undefined && known.settles.length < MAX_OF_TASK) return void known.settles.push(settle)
    this.#giveUp(key)
    if (this.#held.size >= MAX_HELD) this.#makeRoom()
    const tenant = call.countsAs
    const shared = sharedKeyOf(call, id)
    this.#held.set(key, {
      tool: call.tool ?? '',
      tenant,
      shared,
      settles: [settle],
      expiry: this.#expiryOf(key),
    })
    this.#latest.set(shared, key)
    const keys = this.#keysOf.get(tenant) ?? new Set()
    this.#keysOf.set(tenant, keys.add(key))
    this.#moved(tenant, keys.size - 1, keys.size)
  }

  /** Handles the outcome of a request. If it tells the end of a held task, ends the calls of the task. */
  told(call: Call, outcome: Outcome): void {
    const found = this.#find(call)
    if (found === undefined) return
    const { key, held, isOwn } = found
    const end = outcome.kind === 'answered' ? endOf(call, outcome) : undefined
    // Ignores an error from another session: the server may not know the task there, and the task continues.
    if (end !== undefined && (isOwn || end.kind !== 'answered' || end.verdict !== 'rpc_error'))
      return this.#end(key, held, end)
    this.#expiries.remove(held.expiry)
    held.expiry = this.#expiryOf(key)
    const keys = this.#keysOf.get(held.tenant)
    keys?.delete(key)
    keys?.add(key)
  }

  /** Returns the tool of the task whose result a request asks for; undefined for other requests and unknown tasks. */
  makerFor(call: Call): string | undefined {
    return call.method === 'tasks/result' ? this.#find(call)?.held.tool : undefined
  }

  closeAll(): void {
    for (const key of this.#held.keys()) this.#giveUp(key)
  }

  #find(call: Call): { readonly key: string; readonly held: Held; readonly isOwn: boolean } | undefined {
    if (this.#held.size === 0 || !namesTask(call.method)) return undefined
    const { taskId } = paramsOf(call.message.value)
    if (typeof taskId !== 'string') return undefined
    const own = keyOf(call, taskId)
    const isOwn = this.#held.has(own)
    const key = isOwn || call.countsAs === '' ? own : (this.#latest.get(sharedKeyOf(call, taskId)) ?? own)
    const held = this.#held.get(key)
    return held && { key, held, isOwn }
  }

  #expiryOf(key: string): Expiry {
    return this.#expiries.add(() => this.#giveUp(key))
  }

  #giveUp(key: string): void {
    const held = this.#held.get(key)
    if (held !== undefined) this.#end(key, held, accepted)
  }

  #end(key: string, { tenant, shared, settles, expiry }: Held, outcome: Outcome): void {
    this.#held.delete(key)
    this.#expiries.remove(expiry)
    if (this.#latest.get(shared) === key) this.#latest.delete(shared)
    const keys = this.#keysOf.get(tenant)
    keys?.delete(key)
    const left = keys?.size ?? 0
    if (left === 0) this.#keysOf.delete(tenant)
    this.#moved(tenant, left + 1, left)
    for (const settle of settles) settle(outcome)
  }

  /** Updates the index of tenants after a tenant's number of held calls changed by 1. */
  #moved(tenant: string, before: number, now: number): void {
    const former = this.#tenantsWith.get(before)
    former?.delete(tenant)
    if (former?.size === 0) this.#tenantsWith.delete(before)
    if (now > 0) this.#tenantsWith.set(now, (this.#tenantsWith.get(now) ?? new Set()).add(tenant))
    if (now > this.#most || !this.#tenantsWith.has(this.#most)) this.#most = now
  }

  #makeRoom(): void {
    const [tenant = ''] = this.#tenantsWith.get(this.#most) ?? []
    const [oldest] = this.#keysOf.get(tenant) ?? []
    if (oldest !== undefined) this.#giveUp(oldest)
  }
}

const keyOf = ({ caller, server }: Call, id: string) => `${caller.id}\n${server}\n${shortId(id)}`

const sharedKeyOf = ({ countsAs, server }: Call, id: string) => `${countsAs}\n${server}\n${shortId(id)}`

/** Matches the error message of a server that does not know a task. */
const ofTasks = /\btask\b/i

/**
 * Returns the outcome of a task from the answer to a request about the task; undefined when the answer does not tell
 * its end.
 */
function endOf({ method }: Call, outcome: Outcome & { kind: 'answered' }): Outcome | undefined {
  const { error } = outcome.result.value
  // Changes the code to an internal error: the server itself gave the id, so the server has lost the task.
  if (isObject(error) && error.code === INVALID_PARAMS && ofTasks.test(String(error.message)))
    return answered(outcome, { error: { ...error, code: INTERNAL_ERROR } })
  return method === 'tasks/result' ? outcome : toldEnd(outcome)
}

/**
 * Returns the outcome of a task from its state in an answer; undefined when the task continues or its result is not
 * fetched yet.
 */
function toldEnd(outcome: Outcome & { kind: 'answered' }): Outcome | undefined {
  const { result } = outcome.result.value
  if (!isObject(result)) return undefined
  const task = isObject(result.task) ? result.task : result
  switch (task.status) {
    case 'cancelled':
      return { kind: 'failed', error: gatewayError('cancelled', 'the task was cancelled', { sent: true }) }
    case 'failed':
      return 'error' in task
        ? answered(outcome, { error: task.error })
        : { ...outcome, verdict: 'tool_error' }
    case 'completed':
      // Without the result here (legacy era), waits until the agent fetches the result.
      return 'result' in task ? answered(outcome, { result: task.result }) : undefined
    default:
      return undefined
  }
}

/** Returns the end of a task as an outcome of the call itself. */
function answered({ result }: Outcome & { kind: 'answered' }, response: object): Outcome {
  const value = { jsonrpc: '2.0', ...response }
  return { kind: 'answered', result: { ...result, value }, verdict: verdictOf(value) }
}
