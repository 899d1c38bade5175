import { ignore } from './cancel.ts'
import type { Cancel, Clock, Millis } from './clock.ts'

/** Everything built from one config. Immutable. */
export interface Generation {
  /** How long calls may outlast their generation, in milliseconds: longer than their deadlines, up to 24 days. */
  readonly patienceMs: Millis
  /** Frees the generation's own resources. Called once: after its last call, or when `patienceMs` is over. */
  close(): void
}

/** Keeps a generation open for a call, until `release` is called. */
export interface GenerationLease<G extends Generation> {
  readonly generation: G
  release(): void
}

interface Slot<G extends Generation> {
  readonly generation: G
  users: number
  /** Stops the timer of `patienceMs`; set when the generation is retired. */
  cancelPatience: Cancel | undefined
}

/**
 * The generation in force; empty until the first `swap`. A reload is one assignment: calls in flight finish on their
 * own generation, which closes after its last call. Calls have deadlines of their own; `patienceMs` covers calls that
 * never end, so nothing is retained forever.
 */
export class Live<G extends Generation> {
  readonly #clock: Clock
  readonly #onOverdue: (calls: number) => void
  readonly #retired = new Set<Slot<G>>()
  #slot: Slot<G> | undefined

  /** `onOverdue` gets the number of calls still running when `patienceMs` closes their generation. */
  constructor(clock: Clock, onOverdue: (calls: number) => void = ignore) {
    this.#clock = clock
    this.#onOverdue = onOverdue
  }

  /** The generation in force. Code built before the first generation may keep this object and read `current` later. */
  get current(): G {
    return this.#slot!.generation
  }

  /** All generations not yet closed: the current first, then the retired, oldest first. */
  get open(): readonly G[] {
    return [this.current, ...[...this.#retired].map(({ generation }) => generation)]
  }

  /** Returns a lease that keeps the current generation open. Call its `release` exactly once. */
  enter(): GenerationLease<G> {
    const slot = this.#slot!
    slot.users++
    return { generation: slot.generation, release: () => this.#leave(slot) }
  }

  /** Holds the current generation open until the promise of `use` settles. */
  async within<T>(use: (generation: G) => Promise<T>): Promise<T> {
    const { generation, release } = this.enter()
    try {
      return await use(generation)
    } finally {
      release()
    }
  }

  swap(next: G): void {
    const old = this.#slot
    this.#slot = { generation: next, users: 0, cancelPatience: undefined }
    if (old === undefined) return
    if (old.users === 0) return old.generation.close()
    this.#retired.add(old)
    old.cancelPatience = this.#clock.after(old.generation.patienceMs, () => {
      const { users } = old
      old.users = 0
      this.#onOverdue(users)
      this.#close(old)
    })
  }

  #leave(slot: Slot<G>): void {
    if (slot.users === 0) return
    slot.users--
    if (slot.users > 0 || !this.#retired.has(slot)) return
    slot.cancelPatience?.()
    this.#close(slot)
  }

  #close(slot: Slot<G>): void {
    this.#retired.delete(slot)
    slot.generation.close()
  }
}
