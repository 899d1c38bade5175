import type { Millis } from '../../mesh/clock.ts'
import type { OperatorTarget, StateStore } from '../../mesh/policy.ts'
import { DEFAULT_SET } from '../../mesh/settings.ts'

/**
 * When an operator opened the breaker of each tool, in milliseconds of the Unix epoch; `false`: an operator closed the
 * breaker. Key undefined: the breaker of requests that name no tool.
 */
type Orders = Map<string | undefined, Millis | false>

/** State kinds of orders: for all policy sets, and for a single policy set. */
const FOR_ALL = 'breaker-orders'
const FOR_ONE = 'breaker-orders-of-set'

function ordersForAll(store: StateStore, server: string): Orders {
  return store.get<Orders>({ kind: FOR_ALL, set: DEFAULT_SET, server }, () => new Map())
}

function ordersForOne(store: StateStore, set: string, server: string): Orders {
  return store.get<Orders>({ kind: FOR_ONE, set, server }, () => new Map())
}

/**
 * The tools of a server whose breakers an operator holds open in a policy set. An order for the set overrides an order
 * for all sets. Orders are stored apart from breakers: a breaker starts over with new settings or a new endpoint, and
 * an order outlives both. An order also applies to a tool without a breaker.
 */
export class Holds {
  readonly #forAll: Orders
  readonly #forOne: Orders

  constructor(store: StateStore, set: string, server: string) {
    this.#forAll = ordersForAll(store, server)
    this.#forOne = ordersForOne(store, set, server)
  }

  /** Returns since when a tool is held open, in milliseconds of the Unix epoch; `false` when it is not. */
  since(tool: string | undefined): Millis | false {
    return this.#forOne.get(tool) ?? this.#forAll.get(tool) ?? false
  }

  /** Returns the tools held open, each with its start time. */
  list(): readonly (readonly [tool: string | undefined, since: Millis])[] {
    return [...new Set([...this.#forAll.keys(), ...this.#forOne.keys()])].flatMap((tool) => {
      const since = this.since(tool)
      return since === false ? [] : [[tool, since] as const]
    })
  }
}

/**
 * Records an order. An order for all sets replaces the orders for single sets. Closing a tool in the default set ends
 * an order for all sets. Present arms then get orders of their own and stay open; later arms do not.
 */
export function note(store: StateStore, { set, server, tool }: OperatorTarget, since: Millis | false): void {
  const forAll = ordersForAll(store, server)
  const forOne = store.list<Orders>(FOR_ONE).filter(([key]) => key.server === server)
  if (set === undefined) {
    forAll.set(tool, since)
    for (const [, orders] of forOne) orders.delete(tool)
    return
  }
  const held = forAll.get(tool) ?? false
  if (set === DEFAULT_SET && since === false && held !== false) {
    forAll.delete(tool)
    for (const [, orders] of forOne) if (!orders.has(tool)) orders.set(tool, held)
  }
  ordersForOne(store, set, server).set(tool, since)
}
