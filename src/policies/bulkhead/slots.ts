import type { Millis } from '../../mesh/clock.ts'

/** Weight of the newest call in the mean time for which a slot is held. */
const NEWEST = 0.1

/** For how long slots are held: by calls that gave theirs back, and so far by those that have not. */
export class Holds {
  #running = 0
  /** Sum of the start times of all running calls: their mean age follows from the sum, however many calls run. */
  #startSum: Millis = 0
  #meanMs: Millis | undefined

  /** How many slots are held. */
  get running(): number {
    return this.#running
  }

  /** For how long calls have held it that gave it back; undefined while there are none. */
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

  /** A call was under way for so long, whether its slot has counted all the time or not. */
  learn(heldMs: Millis): void {
    this.#meanMs = this.#meanMs === undefined ? heldMs : this.#meanMs + (heldMs - this.#meanMs) * NEWEST
  }

  /** A slot does not count any more whose call has not ended. */
  left(startedAt: Millis): void {
    // Not what is left of the sum: errors of rounding would add up.
    this.#startSum = --this.#running === 0 ? 0 : this.#startSum - startedAt
  }

  /**
   * For how long a slot is held, in milliseconds, as far as anybody knows: the mean of calls that have ended, or that of
   * the ages of those that have not, if these are older already. Calls that hang do not end, so the former alone
   * would promise what the tool was like before.
   */
  estimateMs(now: Millis): Millis {
    const age = this.#running === 0 ? 0 : now - this.#startSum / this.#running
    return Math.max(this.#meanMs ?? 0, age)
  }
}

/** The slots of one tool, and who waits for them. */
export interface ToolSlots {
  /** Undefined: all requests that are for no listed tool, or all lists. */
  readonly tool: string | undefined
  /** Whether these slots are for list requests; every agent needs lists, so lists share no slots with reads. */
  readonly forLists: boolean
  /** How many slots it may hold at most, whatever is free; undefined: what `limitOf` grants it. */
  readonly perTool: number | undefined
  readonly holds: Holds
  waiting: number
}

/**
 * How much one tool may take now of something that all share, which has `size`, of which `used` is taken, `own` of that
 * by the tool itself. By the dynamic threshold algorithm with α = 1
 * (A. K. Choudhury and E. L. Hahne, "Dynamic Queue Length Thresholds for Shared-Memory Packet Switches", IEEE/ACM
 * Transactions on Networking 6(2), 1998): one more as long as it has less than what is free. A tool that is alone
 * stops at half, a second one at half of what the first has left, and so on: of 64, six tools that hang leave a
 * seventh one something. A fixed share for each would be lost while few are busy.
 */
export function threshold(size: number, used: number, own: number): number {
  return Math.ceil((size - (used - own)) / 2)
}

/**
 * The tools of one pool. Chains and calls hold on to what they use, and nobody else does: tools come and go with
 * catalogs and reloads.
 */
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

  /** Returns the slots of tools with calls that run or wait now. */
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
