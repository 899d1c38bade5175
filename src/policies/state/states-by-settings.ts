import { LRUCache } from 'lru-cache'
import type { Observable } from '../../mesh/policy.ts'

/**
 * The states of one server, by the settings that made them. Overrides give tools of one server different settings
 * at the same time, which the store, with its one state per owner, would take for reloads. Past `most`, that which
 * has not been asked for the longest goes; chains and calls which hold it go on with it.
 */
export class StatesBySettings<State extends Observable> implements Observable {
  readonly #states: LRUCache<string, State>

  /** `most`: how many states are kept, at least 1. */
  constructor(most = 64) {
    this.#states = new LRUCache({ max: most })
  }

  /** The state under these settings, created at the first asking. */
  get(settings: unknown, create: () => State): State {
    const key = JSON.stringify(settings)
    const known = this.#states.get(key)
    if (known !== undefined) return known
    const state = create()
    this.#states.set(key, state)
    return state
  }

  /** All of them; that which has not been asked for the longest comes first. */
  states(): State[] {
    const states: State[] = []
    this.#states.rforEach((state) => states.push(state))
    return states
  }

  /** In the same order. */
  snapshot(): unknown[] {
    return this.states().flatMap((state) => state.snapshot())
  }
}

/** `count` × `share`, which is in (0, 1], rounded down; at least 1. */
export const partOf = (count: number, share: number): number => Math.max(1, Math.floor(count * share))

/** Why a limit of so many calls cannot be divided by these shares, which are 1 together; undefined when it can. */
export function indivisible(what: string, count: number, shares: readonly number[]): string | undefined {
  const together = shares.reduce((sum, share) => sum + partOf(count, share), 0)
  if (together <= count) return undefined
  return `a limit of ${count} ${what} cannot be divided in ${shares.length}: with one for each part at least, it would be ${together}`
}
