import { DeadlineQueue, isBefore, type Queued } from '../state/deadline-queue.ts'
import type { Tenant, Tenants } from './tenants.ts'
import type { ToolSlots } from './tools.ts'

/** A call that waits for a slot. */
export interface Waiter extends Queued {
  readonly tool: ToolSlots
  readonly tenant: Tenant
  /** It has a slot now. */
  start(): void
  /** Its place goes to somebody else. */
  displace(): void
}

/** The waiting calls of one tenant for one tool: whether one of them may go is decided for all of them at once. */
export interface Lane {
  readonly tool: ToolSlots
  readonly tenant: Tenant
  readonly queue: DeadlineQueue<Waiter>
}

/** All waiting calls of a pool. */
export class Lanes {
  readonly #tenants: Tenants
  readonly #hasSlot: (tool: ToolSlots) => boolean
  readonly #lanes = new Set<Lane>()
  #size = 0

  /** `hasSlot`: whether a tool may start one more call now. */
  constructor(tenants: Tenants, hasSlot: (tool: ToolSlots) => boolean) {
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
      lane = { tool, tenant, queue: new DeadlineQueue() }
      tenant.lanes.set(tool, lane)
      this.#lanes.add(lane)
    }
    lane.queue.push(waiter)
    this.#size++
    tool.waiting++
    this.#tenants.queued(tenant)
  }

  /** Takes one out; false when it does not wait any more. */
  remove(waiter: Waiter): boolean {
    const { tool, tenant } = waiter
    const lane = tenant.lanes.get(tool)
    if (lane?.queue.remove(waiter) !== true) return false
    if (lane.queue.size === 0) {
      tenant.lanes.delete(tool)
      this.#lanes.delete(lane)
    }
    this.#size--
    tool.waiting--
    this.#tenants.left(tenant)
    return true
  }

  /** Whose turn it is: the earliest of a tenant that holds less than `share` slots, else the earliest of all. */
  next(share: number): Waiter | undefined {
    let fair: Waiter | undefined
    let any: Waiter | undefined
    for (const { tool, tenant, queue } of this.#lanes) {
      if (!this.#hasSlot(tool)) continue
      const first = queue.first!
      if (any === undefined || isBefore(first, any)) any = first
      if (tenant.running < share && (fair === undefined || isBefore(first, fair))) fair = first
    }
    return fair ?? any
  }

  /**
   * Who has to make room for one more of `tenant`: the latest of the tenant with the most calls waiting, among
   * those for `tool` when it is given. Undefined when nobody waits with more calls than the tenant itself then would.
   */
  crowder(tenant: Tenant, tool: ToolSlots | undefined): Waiter | undefined {
    let most = 1 + (tool === undefined ? tenant.waiting : (tenant.lanes.get(tool)?.queue.size ?? 0))
    let longest: Lane | undefined
    for (const lane of this.#lanes) {
      if (tool !== undefined && lane.tool !== tool) continue
      const crowd = tool === undefined ? lane.tenant.waiting : lane.queue.size
      const longer = longest?.tenant === lane.tenant && lane.queue.size > longest.queue.size
      if (crowd > most || longer) longest = lane
      most = Math.max(most, crowd)
    }
    return longest?.queue.last
  }
}
