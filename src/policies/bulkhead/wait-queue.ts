import type { Call, Outcome } from '../../mesh/call.ts'
import type { ExpiryQueue } from '../../mesh/expiry.ts'
import { DeadlineQueue, type Queued, isBefore } from '../state/deadline-queue.ts'
import { givenUp } from '../state/given-up.ts'
import type { ToolSlots } from './slots.ts'

/** A call that waits for a slot. */
interface Waiter extends Queued {
  readonly tool: ToolSlots
  readonly tenant: Tenant
  /** It has a slot now. */
  start(): void
  /** Its place goes to somebody else. */
  displace(): void
}

/** The waiting calls of one tenant for one tool: whether one of them may go is decided for all of them at once. */
interface Lane {
  readonly tool: ToolSlots
  readonly tenant: Tenant
  readonly queue: DeadlineQueue<Waiter>
}

/** All waiting calls of a pool. */
export class WaitQueue {
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
  evictionVictim(tenant: Tenant, tool: ToolSlots | undefined): Waiter | undefined {
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

/** What one tenant has of a pool. */
export interface Tenant {
  readonly name: string
  running: number
  waiting: number
  /** Where its calls wait, by tool. */
  readonly lanes: Map<ToolSlots, Lane>
}

/** The tenants of one pool. Those who have nothing in it are forgotten from time to time, not at every call. */
export class Tenants {
  readonly #known = new Map<string, Tenant>()
  #active = 0
  #sweepAt = 1024

  /** How many tenants run or wait. */
  get active(): number {
    return this.#active
  }

  of(name: string): Tenant {
    const known = this.#known.get(name)
    if (known !== undefined) return known
    if (this.#known.size >= this.#sweepAt) this.#sweep()
    const tenant: Tenant = { name, running: 0, waiting: 0, lanes: new Map() }
    this.#known.set(name, tenant)
    return tenant
  }

  started(tenant: Tenant): void {
    if (tenant.running++ + tenant.waiting === 0) this.#active++
  }

  ended(tenant: Tenant): void {
    if (--tenant.running + tenant.waiting === 0) this.#active--
  }

  queued(tenant: Tenant): void {
    if (tenant.waiting++ + tenant.running === 0) this.#active++
  }

  left(tenant: Tenant): void {
    if (--tenant.waiting + tenant.running === 0) this.#active--
  }

  #sweep(): void {
    for (const [name, { running, waiting }] of this.#known) {
      if (running + waiting === 0) this.#known.delete(name)
    }
    this.#sweepAt = Math.max(1024, 2 * this.#known.size)
  }
}

/** A call that has to wait, and what may come of it. */
interface Waiting extends Pick<Waiter, 'order' | 'tool' | 'tenant'> {
  readonly call: Call
  /** Takes the slot that it gets in the end. */
  start(): Promise<Outcome>
  full(): Outcome
  waitedInVain(): Outcome
}

/** The end of a call that was given up while it waited. */
export const leftWaiting = (call: Call): Outcome => givenUp(call, 'cancelled while it waited for a slot')

/** Lets a call wait for a slot, for as long as `expiries` allow and nobody gives it up. */
export function waitForSlot(lanes: WaitQueue, expiries: ExpiryQueue, waiting: Waiting): Promise<Outcome> {
  const { call, order, tool, tenant } = waiting
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
      at: call.deadline?.at ?? Infinity,
      order,
      place: -1,
      tool,
      tenant,
      start() {
        leave()
        // In a promise, so that a defect further in meets this call and not the one that gave its slot back.
        resolve(new Promise((settle) => settle(waiting.start())))
      },
      displace: () => end(waiting.full()),
    }
    const expiry = expiries.add(() => end(waiting.waitedInVain()))
    call.signal.addEventListener('abort', aborted)
    lanes.add(waiter)
  })
}
