import type { Clock } from './mesh/clock.ts'
import { createDice } from './mesh/dice.ts'
import type { DurableStore } from './mesh/durable.ts'
import type { Kit } from './mesh/policy.ts'
import { States } from './mesh/state.ts'
import type { Log } from './telemetry/log.ts'
import { noteEvents } from './telemetry/mesh-events.ts'
import type { Metrics } from './telemetry/metrics.ts'

/** The kit of a gateway, and what its policies remember. */
export interface GatewayKit extends Kit {
  readonly state: States
}

/** What policies may touch, for as long as the process lives. */
export function createKit(
  clock: Clock,
  log: Log,
  metrics: Metrics,
  durable: DurableStore | undefined,
): GatewayKit {
  return { clock, dice: createDice(0), state: new States(), durable, emit: noteEvents(metrics, log) }
}
