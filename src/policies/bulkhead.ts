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

/** The kind of state of pools. */
const BULKHEAD = 'bulkhead'

const schema = z
  .strictObject({
    concurrent: z
      .int()
      .min(1)
      .max(10_000)
      .default(128)
      .describe(
        'How many calls of one server run at once. One whose agent is asked something by the server does not count until it has answered. Overrides with other numbers have slots of their own.',
      ),
    perTool: z
      .int()
      .min(1)
      .max(10_000)
      .optional()
      .describe(
        'How many of them may be calls of one tool; lists count as one tool, and all other requests that are for no listed tool as another. Default: as many as are still free, so that a tool alone stops at half, a second one at half of the rest, and a third one still finds room.',
      ),
    queue: z
      .int()
      .min(0)
      .max(4_096)
      .default(1_024)
      .describe(
        'How many calls may wait for a slot; 0: none. Tenants take turns; the oldest call goes first, and the newest once the oldest has waited for 300ms; tenants whose names are new count as one, and there every second turn goes to the oldest. A tenant whose calls hang leaves the last eighth of the slots to others. Of the places a tool gets the part that it gets of the slots.',
      ),
    maxWait: duration({ min: 1 }).default(30_000).describe('How long a call waits for a slot at most.'),
    tenantShare: z
      .number()
      .min(0.01)
      .max(1)
      .default(0.5)
      .describe('Largest share of the slots that one tenant gets while others wait; alone it may use all.'),
  })
  .superRefine(({ concurrent, perTool }, context) => {
    if (perTool === undefined || perTool <= concurrent) return
    const message = `perTool must not exceed concurrent (${concurrent})`
    context.addIssue({ code: 'custom', path: ['perTool'], message })
  })
  .describe('Limits how many calls of a server run at once, so that a slow one cannot take everything.')

export const bulkheadFull = {
  name: 'bulkhead_full',
  code: 1503,
  retryable: true,
  about:
    'No slot of the server or of the tool was free: the places in the queue are taken, or the call has waited in one for too long.',
} as const satisfies PolicyReason

/**
 * Limits concurrency per server and per tool; calls over the limit wait in a bounded queue, with a fair share for every tenant. A
 * call that finds no place, or no slot in time, is rejected.
 */
export const bulkhead: Policy<z.output<typeof schema>> & { schema: typeof schema } = {
  schema,
  use: 'Keep it in force: without it, one slow server can take all the capacity of the gateway. Raise `concurrent` for servers that handle more calls at once, and lower it for servers that work on one call at a time.',
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

/** A slot that is held for so long, in milliseconds, and for so many times what is usual, does not count any more. */
const OVERDUE_MS: Millis = 5_000
const OVERDUE_TIMES = 5

/** Share of the slots that a tenant with hanging calls leaves to others. Otherwise each freed slot would go to its next hanging call. */
const LEFT_BY_HANGING = 1 / 8

/** Most of such slots, in times of those that count. */
const MOST_OVERDUE_TIMES = 16

interface PoolSettings {
  /** How many calls run at once. */
  readonly concurrent: number
  /** How many calls wait at most. */
  readonly queue: number
  /** How long a call waits at most, in milliseconds. */
  readonly maxWait: Millis
  /** Share of the slots that one tenant may hold while others wait, in (0, 1]. */
  readonly tenantShare: number
}

/** Frees the slot of a call while its agent is asked, and takes a slot for the call again afterwards. */
interface Lending {
  readonly lend: (slot: Slot) => void
  readonly takeBack: (slot: Slot) => Promise<void> | undefined
}

/** The slot of one call, while that is under way. */
class Slot implements Holding {
  outer: Holding | undefined
  readonly tool: ToolSlots
  readonly tenant: Tenant
  /** The name of its agent. */
  readonly agent: string
  /**
   * `lent`: the agent is asked. `waiting`: it has answered, and there is no slot for the call to go on. `overdue`: the call has held it for
   * so long that it does not count any more.
   */
  state: 'held' | 'lent' | 'waiting' | 'overdue' | 'over' = 'held'
  since: Millis = 0
  /** When it is looked at whether it is held for too long. */
  expiry: Expiry | undefined
  /** Ends the wait. */
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
 * The slots of one server. A call needs one of the server's and one of its tool's: it gets both at once, or waits
 * for both without holding either. No slot is free as long as somebody waits who could use it.
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
  /** Looks after slots that are held for long. */
  readonly #overdueLooks: ExpiryQueue
  #overdue = 0
  /** Calls whose agent has answered, and that wait for a slot to go on, oldest first. */
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

  /** Returns the slots of one tool, of all lists, or of all other requests that are for no listed tool. `perTool`: the most slots. */
  tool(tool: string | undefined, perTool: number | undefined, forLists = false): ToolSlots {
    return this.#tools.get(tool, perTool, forLists)
  }

  /** How many slots a tool may hold as things are. */
  limitOf({ perTool, holds }: ToolSlots): number {
    return perTool ?? threshold(this.settings.concurrent, this.running, holds.running)
  }

  /** How many calls of a tool may wait as things are: of the queue it gets what it gets of the slots. */
  placesOf({ perTool, waiting }: ToolSlots): number {
    const { queue, concurrent } = this.settings
    if (perTool !== undefined) return Math.ceil(queue * Math.min(1, perTool / concurrent))
    // With a single slot, half of it is all of it.
    if (concurrent === 1) return queue - (this.waiting - waiting)
    return threshold(queue, this.waiting, waiting)
  }

  /** When all who wait will have been served, in milliseconds, at the pace at which slots are given back. */
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
      // Else a tool that is always slow would be taken for one that hangs, call after call.
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
   * A slot that is held far longer than usual is no measure of what its server does: it hangs, and others may run. As long as nobody knows
   * what is usual for the tool, it is slow, and `#givesWay` decides.
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
   * A tenant that holds several slots gives way to one that has nothing under way; so does an agent among those that count as one tenant.
   * Agents that hold one slot each keep it, else a tool that is merely slow would get more calls at once than it may.
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
    // A tenant that gives a slot back still counts as its holder here: with few slots, tenants take turns.
    if (this.#queue.size > 0 || this.#returning.size > 0) this.#admit()
    this.#tenants.ended(tenant, agent)
  }

  /** While an agent is asked, its call uses no slot: people may take minutes, and others would be locked out for as long. */
  #lend(slot: Slot): void {
    if (slot.state === 'held') {
      slot.state = 'lent'
      this.#free(slot)
    } else if (slot.state === 'waiting') {
      // It was asked once more, before the answer to an earlier question could go on.
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

  /** Whether a tenant may start one more call. Calls that resume after a question need only `#hasSlot`. */
  #mayStart(tool: ToolSlots, { overdue }: Tenant): boolean {
    return this.#hasSlot(tool) && (overdue === 0 || this.#leavesEnough(tool))
  }

  /** Whether others still find slots after a tenant with hanging calls has taken one more. */
  #leavesEnough(tool: ToolSlots): boolean {
    const { concurrent } = this.settings
    const limit = this.limitOf(tool)
    return (
      concurrent - this.running > Math.floor(concurrent * LEFT_BY_HANGING) &&
      limit - tool.holds.running > Math.floor(limit * LEFT_BY_HANGING)
    )
  }

  /** With a slot given back, limits have risen for all tools; with each that is taken, they fall again. */
  #admit(): void {
    const { concurrent, tenantShare } = this.settings
    const now = this.#clock.now()
    // Calls that are half done go first.
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

  /** Whether one more may wait; a tenant that has more waiting than others gives way to them. */
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

/** Bounds of what a rejected call is told to wait, in milliseconds. */
const LEAST_RETRY_MS = 50
const MOST_RETRY_MS = 30_000

/** Rejects a call for which there is no slot and no place to wait. */
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

/** Rejects a call that got no slot in time. */
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

/** Whether it is the tool's own calls that keep it from a slot, and not those of others. */
function isAtLimit(pool: Pool, tool: ToolSlots): boolean {
  const { running } = tool.holds
  if (running < pool.limitOf(tool)) return false
  return tool.perTool !== undefined || pool.running < pool.settings.concurrent || running === pool.running
}

/** How many slots a tool holds, and how many it may; what others have taken since does not make it hold too many. */
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
