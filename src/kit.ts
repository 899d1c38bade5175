import type { Clock } from './mesh/clock.ts'
import { createDice } from './mesh/dice.ts'
import type { Kit } from './mesh/policy.ts'
import type { Log } from './telemetry/log.ts'

/** What policies may touch, for as long as the process lives. */
export function createKit(clock: Clock, log: Log): Kit {
  const state = new Map<string, unknown>()
  return {
    clock,
    dice: createDice(0),
    state: {
      get<State>(key: string, create: () => State): State {
        if (!state.has(key)) state.set(key, create())
        return state.get(key) as State
      },
    },
    emit: ({ type, ...event }) => log.info(event, type),
  }
}
