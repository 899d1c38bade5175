import { driftFrom, Shape, type Drift } from './shape.ts'

/** Replies from which a shape is learned, and of a drift in a row after which it is the new shape. */
const ENOUGH = 20

/** The shape of a tool's replies, and of those that leave it. */
export class ShapeMemory {
  #shape = new Shape()
  #settled = false
  #next: Shape | undefined

  /** Compares a reply with those before it, or learns from it; returns where it differs. */
  observe(value: unknown): Drift | undefined {
    if (!this.#settled) {
      this.#shape.learn(value)
      if (this.#shape.replies === ENOUGH) this.#settle()
      return undefined
    }
    const drift = driftFrom(this.#shape.root, value)
    if (drift === undefined) this.#next = undefined
    else this.#follow(value)
    return drift
  }

  snapshot(): { settled: boolean; paths: number; drifting: number } {
    return { settled: this.#settled, paths: this.#shape.paths, drifting: this.#next?.replies ?? 0 }
  }

  #follow(value: unknown): void {
    this.#next ??= new Shape()
    this.#next.learn(value)
    if (this.#next.replies < ENOUGH) return
    this.#shape = this.#next
    this.#next = undefined
    this.#settle()
  }

  #settle(): void {
    this.#shape.settle()
    this.#settled = true
  }
}
