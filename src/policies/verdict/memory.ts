import { Habit } from './habit.ts'
import { type Drift, ShapeMemory } from './shape.ts'

/** Shortest time between two reports of one kind about one tool, in milliseconds. */
const REPORT_GAP_MS = 10_000

/** Most distinct drifts that are told apart. */
const MAX_DRIFTS = 50

/** Lets the first through, and then one in a while. */
class Throttle {
  #nextAt = -Infinity

  passes(now: number): boolean {
    if (now < this.#nextAt) return false
    this.#nextAt = now + REPORT_GAP_MS
    return true
  }
}

/** What is remembered of the replies of one tool, as long as the tool stays as it is. */
class ToolMemory {
  readonly fingerprint: string
  readonly shape = new ShapeMemory()
  /** Replies are JSON. */
  readonly json = new Habit()
  /** Text and structured content say the same. */
  readonly copy = new Habit()
  readonly whole = new Habit()
  readonly cursor = new Habit()
  readonly #breaches = new Throttle()
  readonly #drifts = new Throttle()
  readonly #reported = new Set<string>()

  constructor(fingerprint: string) {
    this.fingerprint = fingerprint
  }

  /** Whether a breach of the schema is to be reported now. */
  reportsBreach(now: number): boolean {
    return this.#breaches.passes(now)
  }

  /** Whether a drift is to be reported now: each once. */
  reportsDrift({ path, now }: Drift, at: number): boolean {
    const drift = `${path} ${now}`
    if (this.#reported.has(drift) || this.#reported.size >= MAX_DRIFTS || !this.#drifts.passes(at))
      return false
    this.#reported.add(drift)
    return true
  }

  get drifts(): readonly string[] {
    return [...this.#reported]
  }
}

export type { ToolMemory }

/** The memory of a tool, which begins anew when anything in the tool's entry changes. */
export class ToolMemories {
  #memory: ToolMemory | undefined

  of(fingerprint: string): ToolMemory {
    if (this.#memory?.fingerprint !== fingerprint) this.#memory = new ToolMemory(fingerprint)
    return this.#memory
  }

  /** Whether the shape is learned, from how many paths, and the drifts that were reported. */
  snapshot(): Readonly<Record<string, unknown>> {
    if (this.#memory === undefined) return {}
    return { ...this.#memory.shape.snapshot(), drifts: this.#memory.drifts }
  }
}
