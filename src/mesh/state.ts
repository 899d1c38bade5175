import type { Clock, Millis } from './clock.ts'
import type { StateKey, StateStore } from './policy.ts'

interface Slot {
  /** Includes the endpoint's current index. */
  key: StateKey
  readonly config: string
  readonly state: object
  /** When the owner disappeared, on the monotonic clock; undefined while the owner exists. */
  goneAt: Millis | undefined
}

/** Most states to keep. Beyond the limit, the least recently used states are dropped. */
const MAX_STATES = 50_000

/**
 * Most states without an owner, included in `MAX_STATES`. Beyond the limit, the states without an owner for the longest
 * time are dropped.
 */
const MAX_GONE = 10_000

/** How long a state outlives its owner, in milliseconds: long enough to repair a wrong config. */
const GONE_MS = 15 * 60_000

/** Most distinct settings with shared text. */
const MAX_CONFIGS = 1_000

/** The states as seen by a generation; see `States.ofGeneration`. */
export interface GenerationStates extends StateStore {
  /** Called when no call of the generation is left. */
  close(): void
}

/**
 * The memory of policies for the life of the process. Bounded; each owner has one state: the state of the config in
 * force. The state of a server, endpoint or set that left the config is kept for a quarter of an hour. If the owner
 * returns in time, the same state is used again.
 */
export class States implements StateStore {
  readonly #clock: Pick<Clock, 'now' | 'after'>
  readonly #slots = new Map<string, Slot>()
  /** The states without an owner, earliest to expire first. */
  readonly #gone = new Map<string, Slot>()
  /** Shares the text of equal settings, because thousands of states have the same settings. */
  readonly #configs = new Map<string, string>()
  #placed: (key: StateKey) => StateKey | undefined = (key) => key
  #sweeping = false
  /** The private states of each generation. */
  readonly #own = new WeakMap<StateStore, Map<string, Slot>>()
  #inForce: StateStore | undefined

  constructor(clock: Pick<Clock, 'now' | 'after'>) {
    this.#clock = clock
  }

  /**
   * Returns the states as seen by a generation. While another generation is in force, this generation shares the states
   * that have equal settings, and keeps private states for all others. Reasons: chains are built before their config is
   * in force, and calls of a replaced generation still use states.
   * The first generation is in force from the beginning.
   */
  ofGeneration(): GenerationStates {
    const own = new Map<string, Slot>()
    const states: GenerationStates = {
      get: (key, create) =>
        states === this.#inForce ? this.get(key, create) : this.#getApart(own, key, create),
      list: (kind) => this.list(kind),
      close() {
        for (const slot of own.values()) retire(slot)
        own.clear()
      },
    }
    this.#own.set(states, own)
    this.#inForce ??= states
    return states
  }

  get<State extends object>(key: StateKey, create: () => State): State {
    const owner = ownerOf(key)
    const config = this.#configOf(key)
    const found = this.#find(owner, config)
    if (found !== undefined) return found as State
    this.#forget(owner)
    return this.#add(owner, key, config, create())
  }

  list<State extends object>(kind: string): readonly (readonly [StateKey, State])[] {
    const slots = [...this.#slots.values()].filter(({ key }) => key.kind === kind)
    return slots.map(({ key, state }) => [key, state as State])
  }

  /**
   * Puts a generation's config into force and makes its private states the owners' states. `placed` returns a key with
   * the endpoint's new index, or undefined when the server, endpoint or set left the config. `mayDiffer` selects the
   * keys that may have changed; other keys, perhaps tens of thousands, are not visited.
   */
  settle(
    placed: (key: StateKey) => StateKey | undefined,
    mayDiffer: (key: StateKey) => boolean = () => true,
    generation = this.#inForce,
  ): void {
    this.#placed = placed
    this.#inForce = generation
    const own = generation && this.#own.get(generation)
    for (const [owner, slot] of own ?? []) {
      this.#forget(owner)
      this.#slots.set(owner, slot)
    }
    own?.clear()
    const back = [...this.#gone]
    for (const [owner, slot] of this.#slots)
      if (mayDiffer(slot.key) && !this.#place(slot)) this.#leave(owner, slot)
    for (const [owner, slot] of back) {
      if (!this.#place(slot)) continue
      this.#gone.delete(owner)
      slot.goneAt = undefined
      this.#slots.set(owner, slot)
    }
    this.#bound()
  }

  #getApart<State extends object>(own: Map<string, Slot>, key: StateKey, create: () => State): State {
    const owner = ownerOf(key)
    const config = this.#configOf(key)
    const slot = own.get(owner)
    const found = slot?.config === config ? slot.state : this.#find(owner, config)
    if (found !== undefined) return found as State
    const state = create()
    own.set(owner, { key, config, state, goneAt: undefined })
    return state
  }

  #find(owner: string, config: string): object | undefined {
    // A look-up does not restore an owner: calls in flight also ask for owners that left the config.
    const slot = this.#slots.get(owner) ?? this.#gone.get(owner)
    if (slot?.config !== config) return undefined
    if (this.#slots.delete(owner)) this.#slots.set(owner, slot)
    return slot.state
  }

  #forget(owner: string): void {
    for (const slots of [this.#slots, this.#gone]) {
      const slot = slots.get(owner)
      slots.delete(owner)
      if (slot !== undefined) retire(slot)
    }
  }

  /** Forgets everything about a policy set. Later look-ups start with new states. */
  forgetSet(set: string): void {
    for (const slots of [this.#slots, this.#gone])
      for (const [owner, slot] of slots) {
        if (slot.key.set !== set) continue
        slots.delete(owner)
        retire(slot)
      }
  }

  #add<State extends object>(owner: string, key: StateKey, config: string, state: State): State {
    const slot: Slot = { key, config, state, goneAt: undefined }
    if (this.#place(slot)) this.#slots.set(owner, slot)
    else this.#leave(owner, slot)
    this.#bound()
    return state
  }

  /** Updates the replica index in the slot's key. Returns false when the owner is gone. */
  #place(slot: Slot): boolean {
    const now = this.#placed(slot.key)
    if (now === undefined) return false
    const { replica } = slot.key
    slot.key = now
    if (now.replica !== undefined && now.replica !== replica) tellMoved(slot.state, now.replica)
    return true
  }

  #leave(owner: string, slot: Slot): void {
    this.#slots.delete(owner)
    slot.goneAt = this.#clock.now()
    this.#gone.set(owner, slot)
    this.#sweepLater(GONE_MS)
  }

  /** A single timer serves all states without an owner, and fires when the first of them expires. */
  #sweepLater(ms: Millis): void {
    if (this.#sweeping) return
    this.#sweeping = true
    this.#clock.after(ms, () => {
      this.#sweeping = false
      const now = this.#clock.now()
      for (const [owner, slot] of this.#gone) {
        const leftMs = (slot.goneAt ?? now) + GONE_MS - now
        if (leftMs > 0) return this.#sweepLater(leftMs)
        this.#gone.delete(owner)
        retire(slot)
      }
    })
  }

  #bound(): void {
    while (this.#gone.size > MAX_GONE) dropFirst(this.#gone)
    while (this.#slots.size + this.#gone.size > MAX_STATES)
      dropFirst(this.#gone.size > 0 ? this.#gone : this.#slots)
  }

  #configOf(key: StateKey): string {
    const config = JSON.stringify(key.config) ?? ''
    const known = this.#configs.get(config)
    if (known !== undefined) return known
    if (this.#configs.size >= MAX_CONFIGS) this.#configs.clear()
    this.#configs.set(config, config)
    return config
  }
}

const ownerOf = ({ kind, set, server, tool, overrides, endpoint }: StateKey): string =>
  JSON.stringify([kind, set, server, tool, overrides, endpoint])

function dropFirst(slots: Map<string, Slot>): void {
  for (const [owner, slot] of slots) {
    slots.delete(owner)
    return retire(slot)
  }
}

/**
 * Calls the state's `close`, if any. Calls in flight may still use the state, so `close` may only release parts that
 * these calls do not need.
 */
function retire({ state }: Slot): void {
  if ('close' in state && typeof state.close === 'function') (state as { close(): void }).close()
}

function tellMoved(state: object, replica: number): void {
  if ('moved' in state && typeof state.moved === 'function')
    (state as { moved(replica: number): void }).moved(replica)
}
