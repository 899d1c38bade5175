import type { z } from 'zod'
import type { Layer } from '../mesh/call.ts'
import type { Policy } from '../mesh/policy.ts'
import { Breaker } from './breaker/breaker.ts'
import { breakerSchema } from './breaker/schema.ts'

/** Kind under which breakers are kept: the admin API finds them by it. */
export const BREAKER = 'breaker'

/**
 * Stops calling what fails or answers wrongly, and tries it again later. A breaker for each replica of a tool;
 * a call that names none goes to the first.
 */
export const breaker: Policy<z.output<typeof breakerSchema>> & { schema: typeof breakerSchema } = {
  schema: breakerSchema,
  build(config, kit, { set, server, tool, replicas, backAt }): Layer {
    const breakers = new Array<Breaker | undefined>(replicas)
    function breakerOf(replica: number): Breaker {
      const key = { kind: BREAKER, set, server, tool, replica, config }
      return kit.state.get(key, () => new Breaker(config, kit, key))
    }
    return (next) => (call) => {
      const replica = call.replica ?? 0
      return (breakers[replica] ??= breakerOf(replica)).run(call, next, backAt)
    }
  },
}
