import type { Layer } from '../mesh/call.ts'
import type { Side } from './fault.ts'
import type { Engine } from './firing/engine.ts'

/** The layer that faults work in. While none is armed it costs one branch. */
export function injector(side: Side, engine: Engine): Layer {
  return (next) => (call) => (engine.live ? engine.run(side, next, call) : next(call))
}
