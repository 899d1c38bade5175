import { z } from 'zod'
import type { Call, Holding, Layer, Outcome, Service } from '../mesh/call.ts'
import type { Clock, Millis } from '../mesh/clock.ts'
import { gatewayError, type PolicyReason } from '../mesh/errors.ts'
import { type Expiry, ExpiryQueue } from '../mesh/time-limit.ts'
import { hold, letGo } from '../mesh/pause-deadline.ts'
import type { Policy } from '../mesh/policy.ts'
import { duration, formatDuration } from '../units/duration.ts'
import { Holds, threshold, Tools, type ToolSlots } from './bulkhead/slots.ts'
import { leftWaiting, type Tenant, Tenants, waitForSlot, WaitQueue } from './bulkhead/wait-queue.ts'
import { hasOwnShare } from './state/sameness.ts'
import { StatesBySettings, indivisible, partOf } from './state/states-by-settings.ts'

const BULKHEAD = 'bulkhead'

const schema = z
  .strictObject({
    concurrent: z
      .int()
      .min(1)
      .max(10_000)
      .default(128)
      .describe(
        "How many calls of a server run at once. A call does not count while the server waits for its agent's answer. Overrides with other numbers have their own slots.",
      ),
    perTool: z
      .int()
      .min(1)
      .max(10_000)
      .optional()
      .describe(
        'How many of these calls may be of one tool. All lists count as one tool, and all other requests for no listed tool as another. Default: as many as there are free slots. A single tool then stops at half of the slots, a second tool at half of the rest, and a third tool still finds room.',
      ),
    queue: z
      .int()
      .min(0)
      .max(4_096)
      .default(1_024)
      .describe(
        'How many calls may wait for a slot; 0: none. Tenants take turns. The oldest call goes first, but the newest once the oldest has waited for 300ms. New tenant names count as one tenant, where every second turn goes to the oldest call. A tenant with hanging calls leaves the last eighth of the slots to others. A tool gets the same share of the queue as of the slots.',
      ),
    maxWait: duration({ min: 1 }).default(30_000).describe('How long a call waits for a slot at most.'),
    tenantShare: z
      .number()
      .min(0.01)
      .max(1)
      .default(0.5)
      .describe(
        'Largest share of the slots for one tenant while other tenants wait. A tenant alone may use all slots.',
      ),
  })
  .superRefine(({ concurrent, perTool }, context) => {
    if (perTool === undefined || perTool <= concurrent) return
    const message = `perTool must not exceed concurrent (${concurrent})`
    context.addIssue({ code: 'custom', path: ['perTool'], message })
  })
  .describe('Limits how many calls of a server run at once, so a slow server cannot use all capacity.')

export const bulkheadFull = {
  name: 'bulkhead_full',
  code: 1503,
  retryable: true,
  about: 'No slot of the server or of the tool was free: the queue is full, or the call has waited too long.',
} as const satisfies PolicyReason

/**
 * Limits concurrency per server and per tool. Calls over the limit wait in a bounded queue, with a fair share for every
 * tenant. The policy rejects a call when the queue is full, or when no slot becomes free in time.
 */
export const bulkhead: Policy<z.output<typeof schema>> & { schema: typeof schema } = {
  schema,
  use: 'Keep it in force: without it, a slow server can use all the capacity of the gateway. Raise `concurrent` for servers that handle more calls at once, and lower it for servers that handle a single call at a time.',
  reasons: [bulkheadFull],
  states: [{ kind: BULKHEAD, isBudget: true }],
  indivisible: ({ concurrent, perTool = concurrent }, shares) =>
    indivisible('calls at once', Math.min(concurrent, perTool), shares),
  // Waiting calls cost the server nothing, so the queue is not divided.
  divided: ({ concurrent, perTool, ...others }, share) => {
    const part = (count: number) => partOf(count, share)
    return {
      ...others,
      concurrent: part(concurrent),
      ...(perTool !== undefined && { perTool: part(perTool) }),
    }
  },
  build({ perTool, ...settings }, { clock, state }, { set, server, tool }): Layer {
    const pools = state.get({ kind: BULKHEAD, set, server }, () => new StatesBySettings<Pool>())
    const pool = pools.get(settings, () => new Pool(server, settings, clock))
    const slots = pool.tool(tool, perTool)
    if (tool !== undefined) return (next) => (call) => pool.run(call, slots, next)
    const lists = pool.tool(tool, perTool, true)
    return (next) => (call) => pool.run(call, call.method.endsWith('/list') ? lists : slots, next)
  },
}

/**
 * After `OVERDUE_MS` milliseconds a slot may stop counting, in two cases. First: the slot has been held `OVERDUE_TIMES`
 * times as long as usual for the tool. Second: its tenant or agent holds several slots while another tenant or agent
 * waits.
 */
const OVERDUE_MS: Millis = 5_000
const OVERDUE_TIMES = 5

/**
 * Share of the slots that a tenant with hanging calls must leave free. Else its next calls would take each freed slot.
 */
const LEFT_BY_HANGING = 1 / 8

/** The most overdue slots, as a multiple of the counted slots. */
const MOST_OVERDUE_TIMES = 16

interface PoolSettings {
  readonly concurrent: number
  readonly queue: number
  readonly maxWait: Millis
  /** Share of the slots that one tenant may hold while other tenants wait, in (0, 1]. */
  readonly tenantShare: number
}

/** Frees the slot of a call while its agent is asked, and takes a slot for the call again afterwards. */
interface Lending {
  readonly lend: (slot: Slot) => void
  readonly takeBack: (slot: Slot) => Promise<void> | undefined
}

class Slot implements Holding {
  outer: Holding | undefined
  readonly tool: ToolSlots
  readonly tenant: Tenant
  readonly agent: string
  /**
   * `lent`: the agent is asked. `waiting`: the agent has answered, and the call waits for a free slot. `overdue`: the
   * call has held its slot for so long that the slot no longer counts.
   */
  state: 'held' | 'lent' | 'waiting' | 'overdue' | 'over' = 'held'
  since: Millis = 0
  /** When to check whether the slot is held too long. */
  expiry: Expiry | undefined
  settle: (() => void) | undefined
  readonly #lending: Lending

  constructor(lending: Lending, tool: ToolSlots, tenant: Tenant, agent: string) {
    this.#lending = lending
    this.tool = tool
    this.tenant = tenant
    this.agent = agent
  }

  lend(): void {
    this.#lending.lend(this)
  }

  takeBack(): Promise<void> | undefined {
    return this.#lending.takeBack(this)
  }
}

/**
 * The slots of a server. A call needs a slot of the server and a slot of its tool. It gets both at once, or waits for
 * both without holding either. No slot stays free while a call waits that could use it.
 */
export class Pool {
  readonly server: string
  readonly settings: PoolSettings
  readonly #clock: Clock
  readonly #tools = new Tools()
  readonly #tenants = new Tenants()
  readonly #queue = new WaitQueue(this.#tenants, (tool, tenant) => this.#mayStart(tool, tenant))
  readonly #expiries: ExpiryQueue
  readonly #holds = new Holds()
  /** Checks slots held for long. */
  readonly #overdueLooks: ExpiryQueue
  #overdue = 0
  /** Slots of calls that have their agent's answer and wait until a slot is free again, oldest first. */
  readonly #returning = new Set<Slot>()
  readonly #lending: Lending = {
    lend: (slot) => this.#lend(slot),
    takeBack: (slot) => this.#takeBack(slot),
  }
  constructor(server: string, settings: PoolSettings, clock: Clock) {
    this.server = server
    this.settings = settings
    this.#clock = clock
    this.#expiries = new ExpiryQueue(clock, settings.maxWait)
    this.#overdueLooks = new ExpiryQueue(clock, OVERDUE_MS)
  }

  get running(): number {
    return this.#holds.running
  }

  get waiting(): number {
    return this.#queue.size
  }

  /** Returns the slots of a tool, of all lists, or of all requests for no listed tool. `perTool`: the most slots. */
  tool(tool: string | undefined, perTool: number | undefined, forLists = false): ToolSlots {
    return this.#tools.get(tool, perTool, forLists)
  }

  limitOf({ perTool, holds }: ToolSlots): number {
    return perTool ?? threshold(this.settings.concurrent, this.running, holds.running)
  }

  /** Returns how many calls of a tool may wait now: the same part of the queue as of the slots. */
  placesOf({ perTool, waiting }: ToolSlots): number {
    const { queue, concurrent } = this.settings
    if (perTool !== undefined) return Math.ceil(queue * Math.min(1, perTool / concurrent))
    // A tool may use a single slot alone, so the tool may also use all of the queue.
    if (concurrent === 1) return queue - (this.waiting - waiting)
    return threshold(queue, this.waiting, waiting)
  }

  /** Returns how long until all waiting calls are served, in milliseconds, at the present pace of freed slots. */
  retryAfterMs(tool: ToolSlots): Millis {
    const now = this.#clock.now()
    const ofServer = this.#holds.estimateMs(now) * ((this.waiting + 1) / this.settings.concurrent)
    const ofTool = tool.holds.estimateMs(now) * ((tool.waiting + 1) / Math.max(1, this.limitOf(tool)))
    return Math.max(ofServer, ofTool)
  }

  run(call: Call, tool: ToolSlots, next: Service): Promise<Outcome> {
    const tenant = this.#tenants.of(call.countsAs, !hasOwnShare(call))
    if (this.#mayStart(tool, tenant)) return this.#start(call, tool, tenant, next)
    if (call.signal.aborted) return Promise.resolve(leftWaiting(call))
    if (!this.#makeRoom(tool, tenant)) return Promise.resolve(full(this, tool))
    const since = this.#clock.now()
    return waitForSlot(this.#queue, this.#expiries, {
      call,
      since,
      tool,
      tenant,
      start: () => {
        call.record.waitedMs += this.#clock.now() - since
        return this.#start(call, tool, tenant, next)
      },
      full: () => full(this, tool),
      waitedInVain: () => waitedInVain(this, tool),
    })
  }

  snapshot() {
    const { concurrent, queue } = this.settings
    const tools = this.#tools.active().map((slots) => ({
      tool: slots.tool,
      ...(slots.forLists && { requests: 'lists' }),
      limit: this.limitOf(slots),
      running: slots.holds.running,
      waiting: slots.waiting,
    }))
    const { running, waiting } = this
    const holdMs = Math.round(this.#holds.estimateMs(this.#clock.now()))
    return {
      concurrent,
      running,
      overdue: this.#overdue,
      queue,
      waiting,
      tenants: this.#tenants.active,
      holdMs,
      tools,
    }
  }

  #start(call: Call, tool: ToolSlots, tenant: Tenant, next: Service): Promise<Outcome> {
    const slot = new Slot(this.#lending, tool, tenant, call.tenant)
    this.#take(slot)
    hold(call.record, slot)
    const broke = (cause: unknown): never => {
      this.#end(call, slot, false)
      throw cause
    }
    try {
      return next(call).then((outcome) => {
        this.#end(call, slot, outcome.kind === 'answered')
        return outcome
      }, broke)
    } catch (cause) {
      return broke(cause)
    }
  }

  #end(call: Call, slot: Slot, isAnswered: boolean): void {
    letGo(call.record, slot)
    if (slot.state === 'held') this.#free(slot)
    if (slot.state === 'waiting') this.#returning.delete(slot)
    if (slot.state === 'overdue') {
      this.#overdue--
      if (--slot.tenant.overdue === 0 && this.#queue.size > 0) this.#admit()
      // Also learns from overdue calls: otherwise a tool that is always slow would look like a hanging tool.
      if (isAnswered) slot.tool.holds.learn(this.#clock.now() - slot.since)
    }
    slot.state = 'over'
    slot.settle?.()
  }

  #take(slot: Slot): void {
    const now = this.#clock.now()
    slot.state = 'held'
    slot.since = now
    this.#holds.started(now)
    slot.tool.holds.started(now)
    this.#tenants.started(slot.tenant, slot.agent)
    slot.expiry = this.#overdueLooks.add(() => this.#lookAt(slot))
  }

  /**
   * Stops counting a slot that is held far longer than usual for the tool: the call hangs, and other calls may run.
   * `#givesWay` may decide the same, even while the tool's usual time is unknown.
   */
  #lookAt(slot: Slot): void {
    const heldMs = this.#clock.now() - slot.since
    const { usualMs } = slot.tool.holds
    const isOverdue = (usualMs !== undefined && heldMs >= OVERDUE_TIMES * usualMs) || this.#givesWay(slot)
    if (isOverdue && this.#overdue < MOST_OVERDUE_TIMES * this.settings.concurrent) {
      slot.state = 'overdue'
      this.#overdue++
      slot.tenant.overdue++
      this.#holds.left(slot.since)
      slot.tool.holds.left(slot.since)
      this.#givenBack(slot)
    } else slot.expiry = this.#overdueLooks.add(() => this.#lookAt(slot))
  }

  /**
   * Returns whether a slot must stop counting because its tenant holds several slots while a tenant without a running
   * call waits. Agents that count as one tenant are compared in the same way. An agent with a single slot keeps it,
   * else a merely slow tool would get more calls at once than allowed.
   */
  #givesWay({ tenant, agent, tool }: Slot): boolean {
    if (tenant.running > 1 && this.#queue.isWaitedForByIdle(tool)) return true
    return (tenant.runningOf.get(agent) ?? 0) > 1 && this.#queue.isWaitedForByIdleOf(tenant, tool)
  }

  #free(slot: Slot): void {
    const { tool, since, expiry } = slot
    const now = this.#clock.now()
    if (expiry !== undefined) this.#overdueLooks.remove(expiry)
    this.#holds.ended(since, now)
    tool.holds.ended(since, now)
    this.#givenBack(slot)
  }

  #givenBack({ tenant, agent }: Slot): void {
    // Starts waiting calls before the tenant's count falls. With few slots, the freed slot then goes to another tenant.
    if (this.#queue.size > 0 || this.#returning.size > 0) this.#admit()
    this.#tenants.ended(tenant, agent)
  }

  /** Frees the slot while the agent is asked: people may take minutes, and would lock others out. */
  #lend(slot: Slot): void {
    if (slot.state === 'held') {
      slot.state = 'lent'
      this.#free(slot)
    } else if (slot.state === 'waiting') {
      // The agent was asked again before its earlier answer could be passed on.
      slot.state = 'lent'
      this.#returning.delete(slot)
      slot.settle?.()
    }
  }

  #takeBack(slot: Slot): Promise<void> | undefined {
    if (slot.state !== 'lent') return undefined
    if (this.#hasSlot(slot.tool)) return void this.#take(slot)
    slot.state = 'waiting'
    this.#returning.add(slot)
    return new Promise((resolve) => (slot.settle = resolve))
  }

  #hasSlot(tool: ToolSlots): boolean {
    return this.running < this.settings.concurrent && tool.holds.running < this.limitOf(tool)
  }

  /** Returns whether a tenant may start another call. Calls resuming after a question need only `#hasSlot`. */
  #mayStart(tool: ToolSlots, { overdue }: Tenant): boolean {
    return this.#hasSlot(tool) && (overdue === 0 || this.#leavesEnough(tool))
  }

  /** Returns whether other tenants still find slots after a tenant with hanging calls has taken another slot. */
  #leavesEnough(tool: ToolSlots): boolean {
    const { concurrent } = this.settings
    const limit = this.limitOf(tool)
    return (
      concurrent - this.running > Math.floor(concurrent * LEFT_BY_HANGING) &&
      limit - tool.holds.running > Math.floor(limit * LEFT_BY_HANGING)
    )
  }

  /** Starts waiting calls. A freed slot raises the limits of all tools, and each taken slot lowers them again. */
  #admit(): void {
    const { concurrent, tenantShare } = this.settings
    const now = this.#clock.now()
    // Calls that have already run in part go first.
    for (const slot of this.#returning) {
      if (!this.#hasSlot(slot.tool)) continue
      this.#returning.delete(slot)
      this.#take(slot)
      slot.settle?.()
    }
    while (this.running < concurrent) {
      const share = Math.max(1, Math.floor(concurrent * Math.min(tenantShare, 1 / this.#tenants.active)))
      const waiter = this.#queue.next(share, now)
      if (waiter === undefined) return
      waiter.start()
    }
  }

  /**
   * Returns whether another call may wait. In a full queue, evicts a call of a tenant with more waiting calls, if any.
   */
  #makeRoom(tool: ToolSlots, tenant: Tenant): boolean {
    const isToolFull = tool.waiting >= this.placesOf(tool)
    if (!isToolFull && this.#queue.size < this.settings.queue) return true
    const evictionVictim = this.#queue.evictionVictim(
      tenant,
      isToolFull ? tool : undefined,
      this.#clock.now(),
    )
    evictionVictim?.displace()
    return evictionVictim !== undefined
  }
}

/** Bounds of the wait proposed to a rejected call, in milliseconds. */
const LEAST_RETRY_MS = 50
const MOST_RETRY_MS = 30_000

/** Returns the rejection of a call that gets neither a slot nor a place in the queue. */
export function full(pool: Pool, tool: ToolSlots): Outcome {
  const { queue, concurrent } = pool.settings
  const ofQueue = pool.placesOf(tool)
  const byTool = tool.waiting >= ofQueue && (isAtLimit(pool, tool) || pool.waiting < queue)
  const [waiting, places] = byTool ? [tool.waiting, ofQueue] : [pool.waiting, queue]
  const [running, slots] = byTool ? slotsOf(pool, tool) : [pool.running, concurrent]
  const whom = byTool ? nameOf(pool, tool) : pool.server
  const facts = `${running} of ${slots} running, ${waiting} of ${places} waiting`
  return reject(pool, tool, `bulkhead full for ${whom} (${facts})`)
}

function waitedInVain(pool: Pool, tool: ToolSlots): Outcome {
  const waited = `waited ${formatDuration(pool.settings.maxWait)} for a free slot`
  if (isAtLimit(pool, tool)) {
    const [running, limit] = slotsOf(pool, tool)
    return reject(pool, tool, `${waited} of ${nameOf(pool, tool)} (${running} of ${limit} running)`)
  }
  return reject(
    pool,
    tool,
    `${waited} of ${pool.server} (${pool.running} of ${pool.settings.concurrent} running)`,
  )
}

/** Returns whether the tool's own calls keep it from a slot, rather than calls of other tools. */
function isAtLimit(pool: Pool, tool: ToolSlots): boolean {
  const { running } = tool.holds
  if (running < pool.limitOf(tool)) return false
  return tool.perTool !== undefined || pool.running < pool.settings.concurrent || running === pool.running
}

/**
 * Returns how many slots a tool holds, and its limit. Other tools may have lowered the limit below the first number
 * since; the larger number is returned then.
 */
function slotsOf(pool: Pool, tool: ToolSlots): [number, number] {
  const { running } = tool.holds
  return [running, Math.max(running, pool.limitOf(tool))]
}

function nameOf({ server }: Pool, { tool, forLists }: ToolSlots): string {
  if (forLists) return `lists of ${server}`
  return tool === undefined ? `requests to ${server} that are for no listed tool` : `${tool} of ${server}`
}

function reject(pool: Pool, tool: ToolSlots, message: string): Outcome {
  const error = gatewayError(bulkheadFull, message, { retryAfterMs: retryAfterMs(pool, tool) })
  return { kind: 'rejected', error, by: 'bulkhead' }
}

function retryAfterMs(pool: Pool, tool: ToolSlots): Millis {
  return Math.round(Math.min(MOST_RETRY_MS, Math.max(LEAST_RETRY_MS, pool.retryAfterMs(tool))))
}
