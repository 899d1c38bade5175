import type { StateKey, StateStore } from './policy.ts'

interface Slot {
  readonly key: StateKey
  readonly config: string
  readonly state: object
}

/** Most states that are kept; past it, those that nobody has asked for the longest go. */
const MAX_STATES = 50_000

/** Most distinct settings whose text is shared. */
const MAX_CONFIGS = 1_000

/** What policies remember, for as long as the process lives. Bounded; one state per owner, the latest config's. */
export class States implements StateStore {
  readonly #slots = new Map<string, Slot>()
  /** Thousands of states have the same settings: their text is held once. */
  readonly #configs = new Map<string, string>()

  get<State extends object>(key: StateKey, create: () => State): State {
    const owner = JSON.stringify([key.kind, key.set, key.server, key.tool, key.replica])
    const config = this.#intern(JSON.stringify(key.config) ?? '')
    const slot = this.#slots.get(owner)
    this.#slots.delete(owner)
    if (slot?.config === config) {
      this.#slots.set(owner, slot)
      return slot.state as State
    }
    if (slot !== undefined) retire(slot)
    const state = create()
    this.#slots.set(owner, { key, config, state })
    if (this.#slots.size > MAX_STATES) this.#dropOldest()
    return state
  }

  list<State extends object>(kind: string): readonly (readonly [StateKey, State])[] {
    const slots = [...this.#slots.values()].filter(({ key }) => key.kind === kind)
    return slots.map(({ key, state }) => [key, state as State])
  }

  /** Forgets what belongs to servers or sets that are gone. */
  prune(stays: (key: StateKey) => boolean): void {
    for (const [owner, slot] of this.#slots) {
      if (stays(slot.key)) continue
      this.#slots.delete(owner)
      retire(slot)
    }
  }

  #intern(config: string): string {
    const known = this.#configs.get(config)
    if (known !== undefined) return known
    if (this.#configs.size >= MAX_CONFIGS) this.#configs.clear()
    this.#configs.set(config, config)
    return config
  }

  #dropOldest(): void {
    for (const [owner, slot] of this.#slots) {
      this.#slots.delete(owner)
      return retire(slot)
    }
  }
}

/** Calls in flight may still use it: it may let go only of what they do not need. */
function retire({ state }: Slot): void {
  if ('close' in state && typeof state.close === 'function') (state as { close(): void }).close()
}
