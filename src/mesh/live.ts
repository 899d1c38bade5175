import { ignore } from './cancel.ts'
import type { Cancel, Clock, Millis } from './clock.ts'

/** One immutable build of everything that a config decides. */
export interface Generation {
  /**
   * How long its calls may go on after another generation has taken its place, in milliseconds: longer than any of their
   * deadlines, up to 24 days.
   */
  readonly patienceMs: Millis
  /** Lets go of what only this generation used. Called once, when its last call has ended. */
  close(): void
}

/** A generation that a call holds on to until it ends. */
export interface GenerationLease<G extends Generation> {
  readonly generation: G
  release(): void
}

interface Slot<G extends Generation> {
  readonly generation: G
  users: number
  /** Set once it is retired: takes the end of its patience back. */
  cancelPatience: Cancel | undefined
}

/**
 * The generation that is in force. A reload is one assignment: calls in flight finish on the generation that they
 * started on, which is closed when the last has ended. Empty until the first `swap`. Calls have deadlines of their own; the patience of a generation
 * is there for a call that never ends, so that nothing is retained for ever.
 */
export class Live<G extends Generation> {
  readonly #clock: Clock
  readonly #onOverdue: (calls: number) => void
  readonly #retired = new Set<Slot<G>>()
  #slot: Slot<G> | undefined

  /** `onOverdue`: told of how many calls a generation loses that was closed because its patience was over. */
  constructor(clock: Clock, onOverdue: (calls: number) => void = ignore) {
    this.#clock = clock
    this.#onOverdue = onOverdue
  }

  /** The generation in force. Parts that are made before the first one may hold this object, and look later. */
  get current(): G {
    return this.#slot!.generation
  }

  /** All that are not closed: the current one, then those whose last calls are under way, the oldest first. */
  get open(): readonly G[] {
    return [this.current, ...[...this.#retired].map(({ generation }) => generation)]
  }

  /** Holds the current generation open. `release` it exactly once per lease. */
  enter(): GenerationLease<G> {
    const slot = this.#slot!
    slot.users++
    return { generation: slot.generation, release: () => this.#leave(slot) }
  }

  /** Holds the current generation open until what `use` does with it is done. */
  async within<T>(use: (generation: G) => Promise<T>): Promise<T> {
    const { generation, release } = this.enter()
    try {
      return await use(generation)
    } finally {
      release()
    }
  }

  /** Puts a generation into force. */
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
