import type { Place } from '../mesh/settings.ts'
import type { Live } from '../mesh/live.ts'
import type { Held, Observable, Operator, StateStore } from '../mesh/policy.ts'
import { operators } from '../policies/descriptions.ts'
import type { GatewayGeneration } from '../registry/generation.ts'

export interface OrdersParts {
  readonly live: Pick<Live<GatewayGeneration>, 'current'>
  readonly state: StateStore
}

/** A policy with manual orders: its name, and the operator for handling the orders. */
export type Ordered = readonly [policy: string, operator: Operator]

/** Returns the server's policy sets with this policy for the tool. */
export function setsWith(
  [policy]: Ordered,
  { server, tool }: Pick<Place, 'server' | 'tool'>,
  { live }: OrdersParts,
): readonly string[] {
  const { mesh, servers } = live.current
  return servers.has(server)
    ? mesh.setsOf(server).filter((set) => mesh.has(policy, { set, server, tool }))
    : []
}

/** Returns the states whose policy set has the policy now; only these states accept orders. */
export function statesOf([policy, operator]: Ordered, { live, state }: OrdersParts) {
  const { mesh } = live.current
  const states = state.list<Observable>(operator.kind).filter(([key]) => mesh.has(policy, key))
  for (const [key, one] of states) operator.catchUp(key, one, state)
  return states
}

/** Returns the orders in force for places without a state. */
export function heldOf(ordered: Ordered, parts: OrdersParts): readonly (Place & Held)[] {
  const [, operator] = ordered
  const { servers, mesh } = parts.live.current
  const nameOf = ({ set, server, tool }: Place) => JSON.stringify([set, server, tool])
  const withState = new Set(statesOf(ordered, parts).map(([key]) => nameOf(key)))
  return [...servers.keys()].flatMap((server) => {
    const isInForce = (tool: string | undefined) => setsWith(ordered, { server, tool }, parts).length > 0
    return mesh
      .setsOf(server)
      .flatMap((set) =>
        operator.held(set, server, parts.state, isInForce).map((row) => ({ set, server, ...row })),
      )
      .filter((row) => !withState.has(nameOf(row)))
  })
}

/** Returns the states of a kind, and the orders in force for places without a state. */
export function metStates(kind: string, parts: OrdersParts): readonly (readonly [Place, object])[] {
  const ordered = operators.find(([, operator]) => operator.kind === kind)
  if (ordered === undefined) return parts.state.list(kind)
  const held = heldOf(ordered, parts).filter((row) => setsWith(ordered, row, parts).length > 0)
  return [...statesOf(ordered, parts), ...held.map((row) => [row, row] as const)]
}
