import type { Clock } from '../../src/mesh/clock.ts'
import { createKeyedRandom } from '../../src/mesh/keyed-random.ts'
import type { DurableStore, Effect, MeshEvent, Scope } from '../../src/mesh/policy.ts'
import type { GatewayPolicyContext } from '../../src/gateway/policy-context.ts'
import { States } from '../../src/mesh/state.ts'
import { ManualClock } from './manual-clock.ts'

/** A policy context; events go to `events`. */
export function testPolicyContext(
  clock: Clock = new ManualClock(),
  events: MeshEvent[] = [],
  durable?: DurableStore,
): GatewayPolicyContext {
  return {
    clock,
    random: createKeyedRandom(1),
    state: new States(clock),
    durable,
    emit: (event) => void events.push(event),
  }
}

/** A scope for the tool `tool` of the server `test`, with one replica; `effect` applies to all calls. */
export function testScope({
  effect = 'read_only',
  replicas = 1,
  ...more
}: Partial<Scope> & { effect?: Effect } = {}): Scope {
  return {
    set: 'default',
    server: 'test',
    tool: 'tool',
    overrides: undefined,
    replicas,
    endpoints: Array.from({ length: replicas }, (_, index) => `endpoint ${index}`),
    facts: () => undefined,
    effectOf: () => effect,
    home: () => undefined,
    homes: () => undefined,
    mayMove: () => true,
    leave: () => undefined,
    backAt: () => -Infinity,
    isLost: () => false,
    reached: () => undefined,
    hold: () => () => undefined,
    isOffered: () => true,
    fallbackCall: () => undefined,
    ...more,
  }
}
