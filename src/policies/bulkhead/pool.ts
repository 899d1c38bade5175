import type { Call, Outcome, Service } from '../../mesh/call.ts'
import type { Clock, Millis } from '../../mesh/clock.ts'
import { ExpiryQueue } from '../../mesh/expiry.ts'
import { full, waitedInVain } from './ends.ts'
import { Lanes } from './lanes.ts'
import { Tenants, type Tenant } from './tenants.ts'
import { Tools, type ToolSlots } from './tools.ts'
import { leftWaiting, waitIn } from './wait.ts'

export interface PoolSettings {
  /** How many calls run at once. */
  readonly concurrent: number
  /** How many calls wait at most. */
  readonly queue: number
  /** How long a call waits at most, in milliseconds. */
  readonly maxWait: Millis
  /** Share of the slots that one tenant may hold while others wait, in (0, 1]. */
  readonly tenantShare: number
}

/** Weight of the newest call in the mean time for which a slot is held. */
const NEWEST = 0.1

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
  readonly #lanes = new Lanes(this.#tenants)
  readonly #expiries: ExpiryQueue
  #running = 0
  #arrivals = 0
  #holdMs: Millis = 0

  constructor(server: string, settings: PoolSettings, clock: Clock) {
    this.server = server
    this.settings = settings
    this.#clock = clock
    this.#expiries = new ExpiryQueue(clock, settings.maxWait)
  }

  get running(): number {
    return this.#running
  }

  get waiting(): number {
    return this.#lanes.size
  }

  /** For how long a slot is held, on average, in milliseconds. */
  get holdMs(): Millis {
    return this.#holdMs
  }

  /** The limit of one tool, or of all requests that are for no listed one. */
  tool(tool: string | undefined, limit: number): ToolSlots {
    const { queue, concurrent } = this.settings
    return this.#tools.get(tool, limit, Math.ceil(queue * Math.min(1, limit / concurrent)))
  }

  run(call: Call, tool: ToolSlots, next: Service): Promise<Outcome> {
    const tenant = this.#tenants.of(call.tenant)
    if (this.#running < this.settings.concurrent && tool.running < tool.limit)
      return this.#start(call, tool, tenant, next)
    if (call.signal.aborted) return Promise.resolve(leftWaiting(call))
    if (!this.#makeRoom(tool, tenant)) return Promise.resolve(full(this, tool))
    const since = this.#clock.now()
    return waitIn(this.#lanes, this.#expiries, {
      call,
      order: this.#arrivals++,
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
    const tools = this.#tools
      .active()
      .map(({ tool, limit, running, waiting }) => ({ tool, limit, running, waiting }))
    const { running, waiting } = this
    const holdMs = Math.round(this.#holdMs)
    return { concurrent, running, queue, waiting, tenants: this.#tenants.active, holdMs, tools }
  }

  #start(call: Call, tool: ToolSlots, tenant: Tenant, next: Service): Promise<Outcome> {
    this.#running++
    tool.running++
    this.#tenants.started(tenant)
    const startedAt = this.#clock.now()
    const broke = (cause: unknown): never => {
      this.#free(tool, tenant, startedAt)
      throw cause
    }
    try {
      return next(call).then((outcome) => {
        this.#free(tool, tenant, startedAt)
        return outcome
      }, broke)
    } catch (cause) {
      return broke(cause)
    }
  }

  #free(tool: ToolSlots, tenant: Tenant, startedAt: Millis): void {
    this.#running--
    tool.running--
    this.#holdMs += (this.#clock.now() - startedAt - this.#holdMs) * NEWEST
    // Whoever gives the slot back still counts as its holder: with few slots, tenants take turns.
    if (this.#lanes.size > 0) this.#admit()
    this.#tenants.ended(tenant)
  }

  #admit(): void {
    const { concurrent, tenantShare } = this.settings
    while (this.#running < concurrent) {
      const share = Math.max(1, Math.floor(concurrent * Math.min(tenantShare, 1 / this.#tenants.active)))
      const waiter = this.#lanes.next(share)
      if (waiter === undefined) return
      waiter.start()
    }
  }

  /** Whether one more may wait; a tenant that has more waiting than others gives way to them. */
  #makeRoom(tool: ToolSlots, tenant: Tenant): boolean {
    const crowded = tool.waiting >= tool.places
    if (!crowded && this.#lanes.size < this.settings.queue) return true
    const crowder = this.#lanes.crowder(tenant, crowded ? tool : undefined)
    crowder?.displace()
    return crowder !== undefined
  }
}
