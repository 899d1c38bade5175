import type { Cancellation } from '../mesh/cancel.ts'
import type { Clock, Millis } from '../mesh/clock.ts'
import { type Client, closeAll, ModernClient, openAll, SessionClient } from './client.ts'
import type { Agent, Side } from './twins.ts'
import type { Workload } from './workload.ts'

export interface AgentsOptions {
  /** URL of all servers: `…/mcp`. */
  readonly url: string
  /** Maximum number of tasks at a time. */
  readonly places: number
  readonly eras: Workload['eras']
  readonly patienceMs: Millis
  readonly clock: Clock
  /** Cancels all calls under way. */
  readonly stop: Cancellation
}

/**
 * The agents of a run: clients of the official SDK. In the legacy era, each place (a slot for one task at a time) has a
 * client per arm. In the modern era, a single client serves all places.
 */
export class Agents {
  readonly #options: AgentsOptions
  readonly #seats: Readonly<Record<Side, readonly Client[]>>
  readonly #modern: Client

  private constructor(options: AgentsOptions) {
    const count = options.eras.includes('legacy') ? options.places : 0
    const seats = () =>
      Array.from({ length: count }, (_, at) => new SessionClient({ ...options, name: `compare-${at + 1}` }))
    this.#options = options
    // Both arms use the same client names, because the gateway uses the name as the tenant.
    this.#seats = { control: seats(), treatment: seats() }
    this.#modern = new ModernClient({ ...options, name: 'compare' })
  }

  /** Opens the sessions. When opening fails, ends the opened sessions and rejects with the reason. */
  static async open(options: AgentsOptions): Promise<Agents> {
    const agents = new Agents(options)
    await openAll(agents.#all(), options.url)
    return agents
  }

  at(place: number, side: Side, era: Workload['eras'][number]): Agent {
    const { clock, patienceMs: ms, stop } = this.#options
    const client = era === 'modern' ? this.#modern : this.#seats[side][place]!
    return { call: (call) => client.call(call, { clock, ms, stop }) }
  }

  async close(): Promise<void> {
    await closeAll(this.#all())
  }

  #all(): readonly Client[] {
    const { control, treatment } = this.#seats
    return [...(this.#options.eras.includes('modern') ? [this.#modern] : []), ...control, ...treatment]
  }
}
