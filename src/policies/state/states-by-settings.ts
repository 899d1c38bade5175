import { LRUCache } from 'lru-cache'
import type { Observable } from '../../mesh/policy.ts'

/**
 * The states of a server, by the settings of each. Overrides give tools of a server different settings at the same
 * time; the store, with a single state per owner, would treat the difference as reloads. Past `most`, drops the least
 * recently used state; chains and calls that hold the state continue to use it.
 */
export class StatesBySettings<State extends Observable> implements Observable {
  readonly #states: LRUCache<string, State>

  /** `most`: how many states to keep, at least 1. */
  constructor(most = 64) {
    this.#states = new LRUCache({ max: most })
  }

  get(settings: unknown, create: () => State): State {
    const key = JSON.stringify(settings)
    const known = this.#states.get(key)
    if (known !== undefined) return known
    const state = create()
    this.#states.set(key, state)
    return state
  }

  /** Returns all states, least recently used first. */
  states(): State[] {
    const states: State[] = []
    this.#states.rforEach((state) => states.push(state))
    return states
  }

  /** Returns the snapshots of all states, least recently used first. */
  snapshot(): unknown[] {
    return this.states().flatMap((state) => state.snapshot())
  }
}

/** Returns `count` × `share`, rounded down; at least 1. `share` is in (0, 1]. */
export const partOf = (count: number, share: number): number => Math.max(1, Math.floor(count * share))

/** Returns why a limit of `count` calls cannot be divided by these shares, whose sum is 1; undefined when possible. */
export function indivisible(what: string, count: number, shares: readonly number[]): string | undefined {
  const together = shares.reduce((sum, share) => sum + partOf(count, share), 0)
  if (together <= count) return undefined
  return `a limit of ${count} ${what} cannot be divided into ${shares.length} parts: with at least one each, the sum would be ${together}`
}
