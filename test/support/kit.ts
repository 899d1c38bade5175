import type { Clock } from '../../src/mesh/clock.ts'
import { createDice } from '../../src/mesh/dice.ts'
import type { Kit, MeshEvent } from '../../src/mesh/policy.ts'
import { ManualClock } from './manual-clock.ts'

/** What policies may touch; events go to `events`. */
export function testKit(clock: Clock = new ManualClock(), events: MeshEvent[] = []): Kit {
  const state = new Map<string, unknown>()
  return {
    clock,
    dice: createDice(1),
    state: {
      get<State>(key: string, create: () => State): State {
        if (!state.has(key)) state.set(key, create())
        return state.get(key) as State
      },
    },
    emit: (event) => void events.push(event),
  }
}
