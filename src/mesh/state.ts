import type { Clock, Millis } from './clock.ts'
import type { StateKey, StateStore } from './policy.ts'

interface Slot {
  /** With the place where its endpoint stands now. */
  key: StateKey
  readonly config: string
  readonly state: object
  /** Since when its owner is gone, on the monotonic clock; undefined while it is there. */
  goneAt: Millis | undefined
}

/** Most states that are kept; past it, those that nobody has asked for the longest go. */
const MAX_STATES = 50_000

/** Most states of owners that are gone, among them; past it, those that went first are forgotten. */
const MAX_GONE = 10_000

/** How long a state outlives its owner, in milliseconds: long enough for a config that was wrong to be put right. */
const GONE_MS = 15 * 60_000

/** Most distinct settings whose text is shared. */
const MAX_CONFIGS = 1_000

/** The states as one generation asks for them; see `States.ofGeneration`. */
export interface GenerationStates extends StateStore {
  /** No call of it is left. */
  close(): void
}

/**
 * The memory of policies, for as long as the process lives. Bounded; one state per owner: the state of the config in
 * force. The state of a server, endpoint or set that has left the config is kept for a quarter of an hour. If its owner
 * comes back, the state goes on from there.
 */
export class States implements StateStore {
  readonly #clock: Pick<Clock, 'now' | 'after'>
  readonly #slots = new Map<string, Slot>()
  /** The states without an owner, the first to go first. */
  readonly #gone = new Map<string, Slot>()
  /** Thousands of states have the same settings: their text is held once. */
  readonly #configs = new Map<string, string>()
  #placed: (key: StateKey) => StateKey | undefined = (key) => key
  #sweeping = false
  /** The states that each generation has for itself. */
  readonly #own = new WeakMap<StateStore, Map<string, Slot>>()
  #inForce: StateStore | undefined

  constructor(clock: Pick<Clock, 'now' | 'after'>) {
    this.#clock = clock
  }

  /**
   * The states as one generation asks for them. Until it is in force, and when another one is, it shares those whose settings are its own, and
   * has others for itself: chains are built before their config is in force, and calls that began before it ask after it.
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
   * The config of a generation is in force, and what the generation had for itself is what its owners have. `placed` gives a key as it is from
   * now on, with the index that its endpoint has there, or undefined when its server, endpoint or set is in that config no more. `mayDiffer`: there
   * may be tens of thousands of keys, and those for which it does not hold are as they were.
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
    // Asking brings no owner back: calls in flight ask for what has left the config, too.
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

  /** Forgets all that a policy set remembers: what asks next begins anew. */
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

  /** Notes where the owner stands; false when it is gone. */
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

  /** One timer for all that is gone: it fires when the time of the first is over. */
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

/** Calls in flight may still use it: it may let go only of what they do not need. */
function retire({ state }: Slot): void {
  if ('close' in state && typeof state.close === 'function') (state as { close(): void }).close()
}

function tellMoved(state: object, replica: number): void {
  if ('moved' in state && typeof state.moved === 'function')
    (state as { moved(replica: number): void }).moved(replica)
}
