import type { Lane } from './lanes.ts'
import type { ToolSlots } from './tools.ts'

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
