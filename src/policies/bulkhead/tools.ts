/** The slots that one tool may hold at most, and how many it holds. */
export interface ToolSlots {
  /** Undefined: all requests that are for no listed tool. */
  readonly tool: string | undefined
  readonly limit: number
  /** How many calls of it may wait: the same share of the queue as of the slots, so that it cannot fill it alone. */
  readonly places: number
  running: number
  waiting: number
}

/**
 * The tools of one pool. Chains and calls hold on to what they use, and nobody else does: tools come and go with
 * catalogs and reloads.
 */
export class Tools {
  readonly #known = new Map<string, WeakRef<ToolSlots>>()
  #sweepAt = 64

  get(tool: string | undefined, limit: number, places: number): ToolSlots {
    const key = `${limit}${tool === undefined ? ':' : '='}${tool ?? ''}`
    const known = this.#known.get(key)?.deref()
    if (known !== undefined) return known
    if (this.#known.size >= this.#sweepAt) this.#sweep()
    const slots: ToolSlots = { tool, limit, places, running: 0, waiting: 0 }
    this.#known.set(key, new WeakRef(slots))
    return slots
  }

  /** Those that run or wait now. */
  active(): ToolSlots[] {
    const all = [...this.#known.values()].map((reference) => reference.deref())
    return all.filter((slots) => slots !== undefined && slots.running + slots.waiting > 0) as ToolSlots[]
  }

  #sweep(): void {
    for (const [key, reference] of this.#known) {
      if (reference.deref() === undefined) this.#known.delete(key)
    }
    this.#sweepAt = Math.max(64, 2 * this.#known.size)
  }
}
