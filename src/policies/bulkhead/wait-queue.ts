import type { Call, Outcome } from '../../mesh/call.ts'
import type { Millis } from '../../mesh/clock.ts'
import type { ExpiryQueue } from '../../mesh/time-limit.ts'
import { givenUp } from '../state/given-up.ts'
import type { ToolSlots } from './slots.ts'

interface Waiter {
  readonly tool: ToolSlots
  readonly tenant: Tenant
  readonly agent: string
  /** When the call arrived, on the monotonic clock. */
  readonly since: Millis
  start(): void
  displace(): void
}

/** The waiting calls of a tenant for a tool, oldest first. */
interface Lane {
  readonly tool: ToolSlots
  readonly tenant: Tenant
  readonly waiters: Waiter[]
  /** The number of the lane's latest served call, counted over the pool. */
  servedAt: number
  /** How many turns the lane has had since its oldest call was late. */
  lateTurns: number
}

/** Longest wait in a lane, in milliseconds, before the pool counts as overloaded: then the newest call goes first. */
const LATE_MS: Millis = 300

/**
 * All waiting calls of a pool. Tenants take turns, and so do the tools of a tenant. In a lane the oldest call goes
 * first, until it has waited too long. Then the newest call goes first, because its agent surely still waits (adaptive
 * LIFO; B. Maurer, "Fail at Scale", ACM Queue 13(8), 2015). Where many agents count as one tenant, the newest call of
 * an idle agent then precedes all other new calls. Every second turn goes to the oldest call, or an agent with a steady
 * stream of new calls would block another agent's single call.
 */
export class WaitQueue {
  readonly #tenants: Tenants
  readonly #hasSlot: (tool: ToolSlots, tenant: Tenant) => boolean
  readonly #lanes = new Set<Lane>()
  #size = 0
  #served = 0

  /** `hasSlot` returns whether a tool may start another call of a tenant now. */
  constructor(tenants: Tenants, hasSlot: (tool: ToolSlots, tenant: Tenant) => boolean) {
    this.#tenants = tenants
    this.#hasSlot = hasSlot
  }

  get size(): number {
    return this.#size
  }

  add(waiter: Waiter): void {
    const { tool, tenant } = waiter
    let lane = tenant.lanes.get(tool)
    if (lane === undefined) {
      lane = { tool, tenant, waiters: [], servedAt: this.#served, lateTurns: 0 }
      tenant.lanes.set(tool, lane)
      this.#lanes.add(lane)
    }
    lane.waiters.push(waiter)
    this.#size++
    tool.waiting++
    this.#tenants.queued(tenant)
  }

  /** Removes a call; does nothing when the call no longer waits. */
  remove(waiter: Waiter): void {
    const { tool, tenant } = waiter
    const lane = tenant.lanes.get(tool)
    const at = lane?.waiters.indexOf(waiter) ?? -1
    if (lane === undefined || at === -1) return
    lane.waiters.splice(at, 1)
    if (lane.waiters.length === 0) {
      tenant.lanes.delete(tool)
      this.#lanes.delete(lane)
    }
    this.#size--
    tool.waiting--
    this.#tenants.left(tenant)
  }

  /**
   * Returns the next call: of the tenant with the fewest slots, from the lane with the longest wait for its turn. A
   * tenant with `share` slots or more is behind all others. Undefined when no call finds a slot.
   */
  next(share: number, now: Millis): Waiter | undefined {
    let best: Lane | undefined
    for (const lane of this.#lanes)
      if (this.#hasSlot(lane.tool, lane.tenant) && (best === undefined || comesBefore(lane, best, share)))
        best = lane
    if (best === undefined) return undefined
    best.servedAt = ++this.#served
    const isOldestsTurn = !isLate(best, now) || (best.tenant.isShared && ++best.lateTurns % 2 === 0)
    if (isOldestsTurn) return best.waiters[0]
    return newestIdle(best) ?? best.waiters.at(-1)
  }

  /** Returns whether a tenant with nothing under way waits for a tool. */
  isWaitedForByIdle(tool: ToolSlots): boolean {
    for (const lane of this.#lanes) if (lane.tool === tool && lane.tenant.running === 0) return true
    return false
  }

  /** Returns whether an agent with nothing under way, sharing this tenant with other agents, waits for a tool. */
  isWaitedForByIdleOf({ lanes }: Tenant, tool: ToolSlots): boolean {
    const lane = lanes.get(tool)
    return lane !== undefined && newestIdle(lane) !== undefined
  }

  /**
   * Returns the call to evict for another call of `tenant`; undefined without a victim. The victim is the latest call
   * of the tenant with the most waiting calls, only for `tool` when given. When the new call would give `tenant` the
   * most waiting calls, the victim is the oldest call of `tenant`, if late.
   */
  evictionVictim(tenant: Tenant, tool: ToolSlots | undefined, now: Millis): Waiter | undefined {
    let most = 1 + (tool === undefined ? tenant.waiting : (tenant.lanes.get(tool)?.waiters.length ?? 0))
    let longest: Lane | undefined
    let own: Lane | undefined
    for (const lane of this.#lanes) {
      if (tool !== undefined && lane.tool !== tool) continue
      if (lane.tenant === tenant && (own === undefined || lane.waiters.length > own.waiters.length))
        own = lane
      const crowd = tool === undefined ? lane.tenant.waiting : lane.waiters.length
      const longer = longest?.tenant === lane.tenant && lane.waiters.length > longest.waiters.length
      if (crowd > most || longer) longest = lane
      most = Math.max(most, crowd)
    }
    if (longest !== undefined) return longest.waiters.at(-1)
    return own !== undefined && isLate(own, now) ? own.waiters[0] : undefined
  }
}

/** Returns the newest call of an agent with nothing under way, where many agents share a tenant. */
function newestIdle({ tenant, waiters }: Lane): Waiter | undefined {
  return tenant.isShared ? waiters.findLast(({ agent }) => !tenant.runningOf.has(agent)) : undefined
}

const isLate = ({ waiters }: Lane, now: Millis): boolean => now - (waiters[0]?.since ?? now) >= LATE_MS

function comesBefore(one: Lane, other: Lane, share: number): boolean {
  const [oneIsFair, otherIsFair] = [one.tenant.running < share, other.tenant.running < share]
  if (oneIsFair !== otherIsFair) return oneIsFair
  if (one.tenant.running !== other.tenant.running) return one.tenant.running < other.tenant.running
  return one.servedAt < other.servedAt
}

export interface Tenant {
  readonly name: string
  /** Whether many agents count as this tenant. */
  readonly isShared: boolean
  running: number
  /** How many running calls each agent has, where many agents share the tenant. */
  readonly runningOf: Map<string, number>
  waiting: number
  /** Hanging calls of the tenant. Their slots are given back already. */
  overdue: number
  readonly lanes: Map<ToolSlots, Lane>
}

/** The tenants of a pool. Tenants without calls are dropped from time to time, not at every call. */
export class Tenants {
  readonly #known = new Map<string, Tenant>()
  #active = 0
  #sweepAt = 1024

  get active(): number {
    return this.#active
  }

  /** Returns the tenant with this name; `isShared`: many agents count as this tenant. */
  of(name: string, isShared: boolean): Tenant {
    const known = this.#known.get(name)
    if (known !== undefined) return known
    if (this.#known.size >= this.#sweepAt) this.#sweep()
    const none = { running: 0, runningOf: new Map(), waiting: 0, overdue: 0, lanes: new Map() }
    const tenant: Tenant = { name, isShared, ...none }
    this.#known.set(name, tenant)
    return tenant
  }

  started(tenant: Tenant, agent: string): void {
    if (tenant.running++ + tenant.waiting === 0) this.#active++
    if (tenant.isShared) tenant.runningOf.set(agent, (tenant.runningOf.get(agent) ?? 0) + 1)
  }

  ended(tenant: Tenant, agent: string): void {
    if (--tenant.running + tenant.waiting === 0) this.#active--
    if (!tenant.isShared) return
    const left = (tenant.runningOf.get(agent) ?? 0) - 1
    if (left > 0) tenant.runningOf.set(agent, left)
    else tenant.runningOf.delete(agent)
  }

  queued(tenant: Tenant): void {
    if (tenant.waiting++ + tenant.running === 0) this.#active++
  }

  left(tenant: Tenant): void {
    if (--tenant.waiting + tenant.running === 0) this.#active--
  }

  #sweep(): void {
    for (const [name, { running, waiting, overdue }] of this.#known) {
      if (running + waiting + overdue === 0) this.#known.delete(name)
    }
    this.#sweepAt = Math.max(1024, 2 * this.#known.size)
  }
}

/** A call that has to wait, and its possible outcomes. */
interface Waiting extends Pick<Waiter, 'since' | 'tool' | 'tenant'> {
  readonly call: Call
  start(): Promise<Outcome>
  full(): Outcome
  waitedInVain(): Outcome
}

/** Returns the outcome of a call given up while waiting. */
export const leftWaiting = (call: Call): Outcome => givenUp(call, 'cancelled while it waited for a slot')

/** Lets a call wait for a slot, until `expiries` end the wait or the caller gives up. */
export function waitForSlot(lanes: WaitQueue, expiries: ExpiryQueue, waiting: Waiting): Promise<Outcome> {
  const { call, since, tool, tenant } = waiting
  return new Promise((resolve) => {
    const leave = () => {
      lanes.remove(waiter)
      expiries.remove(expiry)
      call.signal.removeEventListener('abort', aborted)
    }
    const end = (outcome: Outcome) => {
      leave()
      resolve(outcome)
    }
    const aborted = () => end(leftWaiting(call))
    const waiter: Waiter = {
      since,
      tool,
      tenant,
      agent: call.tenant,
      start() {
        leave()
        // Starts the call inside a promise, so that a bug of an inner layer fails this call, and not the call that
        // freed the slot.
        resolve(new Promise((settle) => settle(waiting.start())))
      },
      displace: () => end(waiting.full()),
    }
    const expiry = expiries.add(() => end(waiting.waitedInVain()))
    call.signal.addEventListener('abort', aborted)
    lanes.add(waiter)
  })
}
