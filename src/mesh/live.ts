import type { Cancel, Clock, Millis } from './clock.ts'

/** One immutable build of everything that a config decides. */
export interface Generation {
  /** Lets go of what only this generation used. Called once, when its last call has ended. */
  close(): void
}

/** A generation that a call holds on to until it ends. */
export interface Lease<G extends Generation> {
  readonly generation: G
  release(): void
}

interface Slot<G extends Generation> {
  readonly generation: G
  users: number
  retired: boolean
  cancelDrain: Cancel | undefined
}

/**
 * The generation that is in force. A reload is one assignment: calls in flight finish on the generation
 * that they started on, which is closed when the last has ended, or `drainMs` after the swap.
 */
export class Live<G extends Generation> {
  readonly #clock: Clock
  readonly #drainMs: Millis
  #slot: Slot<G>

  constructor(first: G, clock: Clock, drainMs: Millis) {
    this.#clock = clock
    this.#drainMs = drainMs
    this.#slot = { generation: first, users: 0, retired: false, cancelDrain: undefined }
  }

  get current(): G {
    return this.#slot.generation
  }

  /** Holds the current generation open. `release` it exactly once per lease. */
  enter(): Lease<G> {
    const slot = this.#slot
    slot.users++
    return { generation: slot.generation, release: () => this.#leave(slot) }
  }

  swap(next: G): void {
    const old = this.#slot
    this.#slot = { generation: next, users: 0, retired: false, cancelDrain: undefined }
    old.retired = true
    if (old.users === 0) return old.generation.close()
    old.cancelDrain = this.#clock.after(this.#drainMs, () => {
      old.users = 0
      old.generation.close()
    })
  }

  #leave(slot: Slot<G>): void {
    if (slot.users === 0) return
    slot.users--
    if (slot.users > 0 || !slot.retired) return
    slot.cancelDrain?.()
    slot.generation.close()
  }
}
