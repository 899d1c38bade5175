import type { StateStore } from '../../mesh/policy.ts'
import type { Breaker, BreakerOrder } from './breaker.ts'

/** Tools whose breakers an operator holds open; undefined stands for a server's other requests. */
export type Holds = Set<string | undefined>

/**
 * What an operator holds open of a server, within a policy set. It is no part of a breaker: a breaker begins anew with
 * its settings and with the endpoint that it is for, and what was done by hand is about the tool, whichever they are.
 */
export function holdsOf(state: StateStore, set: string, server: string): Holds {
  return state.get<Holds>({ kind: 'breaker-holds', set, server }, () => new Set())
}

/** Takes the breakers of one tool by hand: those that there are, and, for as long as it is held, those to come. */
export function forceAll(
  holds: Holds,
  tool: string | undefined,
  breakers: readonly Breaker[],
  order: BreakerOrder,
) {
  if (order === 'open') holds.add(tool)
  else holds.delete(tool)
  for (const breaker of breakers) breaker.force(order)
}
