import { randomInt } from 'node:crypto'
import type { Clock } from '../mesh/clock.ts'
import { createDice } from '../mesh/dice.ts'
import type { DurableStore } from '../mesh/durable.ts'
import type { Kit } from '../mesh/policy.ts'
import { States } from '../mesh/state.ts'
import type { Log } from '../telemetry/log.ts'
import { noteEvents } from '../telemetry/mesh-events.ts'
import type { Metrics } from '../telemetry/metrics.ts'

/** The kit of a gateway, and what its policies remember. */
export interface GatewayKit extends Kit {
  readonly state: States
}

/** How many seeds dice tell apart. */
const SEEDS = 2 ** 32

/**
 * What policies may touch, for as long as the process lives. `seed`: of their dice, a whole number from 0 to 2^32 − 1.
 * Each process has one of its own, or gateways before the same servers would wait, and come back, in step. Faults on
 * purpose draw by the seed of their plan.
 */
export function createKit(
  clock: Clock,
  log: Log,
  metrics: Metrics,
  durable: DurableStore | undefined,
  seed: number = randomInt(SEEDS),
): GatewayKit {
  const emit = noteEvents(metrics, log)
  return { clock, dice: createDice(seed), state: new States(clock), durable, emit }
}
