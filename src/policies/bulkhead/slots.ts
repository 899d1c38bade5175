import type { Millis } from '../../mesh/clock.ts'

/** Weight of the newest call in the mean hold time. */
const NEWEST = 0.1

/** Measures how long calls hold slots, from ended calls and from calls that still run. */
export class Holds {
  #running = 0
  /** Sum of the start times of all running calls; gives their mean age at constant cost. */
  #startSum: Millis = 0
  #meanMs: Millis | undefined

  get running(): number {
    return this.#running
  }

  /** How long ended calls have held a slot on average; undefined without any. */
  get usualMs(): Millis | undefined {
    return this.#meanMs
  }

  started(now: Millis): void {
    this.#running++
    this.#startSum += now
  }

  ended(startedAt: Millis, now: Millis): void {
    this.learn(now - startedAt)
    this.left(startedAt)
  }

  /** Adds the run time of a call to the mean, even when its slot stopped counting before the end. */
  learn(heldMs: Millis): void {
    this.#meanMs = this.#meanMs === undefined ? heldMs : this.#meanMs + (heldMs - this.#meanMs) * NEWEST
  }

  /** Stops counting a slot before its call has ended. */
  left(startedAt: Millis): void {
    // Without running calls the sum is set to 0, so that rounding errors do not add up.
    this.#startSum = --this.#running === 0 ? 0 : this.#startSum - startedAt
  }

  /**
   * Estimates how long a slot is held, in milliseconds: the mean of ended calls or the mean age of running calls,
   * whichever is larger. Hanging calls do not end, so the mean of ended calls alone would describe the tool's past.
   */
  estimateMs(now: Millis): Millis {
    const age = this.#running === 0 ? 0 : now - this.#startSum / this.#running
    return Math.max(this.#meanMs ?? 0, age)
  }
}

export interface ToolSlots {
  /** Undefined: all requests for no listed tool, or all lists. */
  readonly tool: string | undefined
  /** Whether these slots are for list requests; every agent needs lists, so lists share no slots with reads. */
  readonly forLists: boolean
  /** How many slots the tool may hold at most, however many are free; undefined: the result of `Pool.limitOf`. */
  readonly perTool: number | undefined
  readonly holds: Holds
  waiting: number
}

/**
 * Returns how much of a shared resource a tool may use now. The resource has `size`, of which `used` is taken, `own` by
 * the tool itself. Uses the dynamic threshold algorithm with α = 1 (A. K. Choudhury and E. L. Hahne, "Dynamic Queue
 * Length Thresholds for Shared-Memory Packet Switches", IEEE/ACM Transactions on Networking 6(2), 1998): a tool may
 * grow while it has less than the free part. A single tool stops at half, a second at half of the rest, and so on: of
 * 64, six hanging tools leave something for a seventh. A fixed share for each tool would be wasted while few are busy.
 */
export function threshold(size: number, used: number, own: number): number {
  return Math.ceil((size - (used - own)) / 2)
}

/** The tools of a pool, held by weak references: tools appear and disappear with catalogs and reloads. */
export class Tools {
  readonly #known = new Map<string, WeakRef<ToolSlots>>()
  #sweepAt = 64

  get(tool: string | undefined, perTool: number | undefined, forLists: boolean): ToolSlots {
    const key = `${perTool ?? ''}${tool === undefined ? ':' : '='}${forLists ? 'lists' : (tool ?? '')}`
    const known = this.#known.get(key)?.deref()
    if (known !== undefined) return known
    if (this.#known.size >= this.#sweepAt) this.#sweep()
    const slots: ToolSlots = { tool, forLists, perTool, holds: new Holds(), waiting: 0 }
    this.#known.set(key, new WeakRef(slots))
    return slots
  }

  /** Returns the slots of tools with running or waiting calls. */
  active(): ToolSlots[] {
    const all = [...this.#known.values()].map((reference) => reference.deref())
    return all.filter(
      (slots) => slots !== undefined && slots.holds.running + slots.waiting > 0,
    ) as ToolSlots[]
  }

  #sweep(): void {
    for (const [key, reference] of this.#known) {
      if (reference.deref() === undefined) this.#known.delete(key)
    }
    this.#sweepAt = Math.max(64, 2 * this.#known.size)
  }
}
