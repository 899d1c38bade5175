import type { z } from 'zod'
import type { Layer } from '../mesh/call.ts'
import type { Policy } from '../mesh/policy.ts'
import { Breaker } from './breaker/breaker.ts'
import { holdsOf } from './breaker/holds.ts'
import { breakerSchema } from './breaker/schema.ts'

/** Kind under which breakers are kept: the admin API finds them by it. */
export const BREAKER = 'breaker'

/**
 * Stops calling what fails or answers wrongly, and tries it again later. A breaker for each endpoint of a tool;
 * a call that names no replica goes to the first.
 */
export const breaker: Policy<z.output<typeof breakerSchema>> & { schema: typeof breakerSchema } = {
  schema: breakerSchema,
  build(config, kit, { set, server, tool, overrides, endpoints, backAt }): Layer {
    const breakers = new Array<Breaker | undefined>(endpoints.length)
    const holds = holdsOf(kit.state, set, server)
    function breakerOf(replica: number): Breaker {
      const owner = { set, server, tool, endpoint: endpoints[replica] ?? '', replica }
      const key = { kind: BREAKER, ...owner, overrides, config }
      const found = kit.state.get(key, () => new Breaker(config, kit, owner))
      // One that is new, or whose endpoint was gone while an operator gave orders, has not heard of them.
      if (holds.has(tool) !== found.isHeld) found.force(holds.has(tool) ? 'open' : 'close')
      return found
    }
    return (next) => (call) => {
      const replica = call.replica ?? 0
      return (breakers[replica] ??= breakerOf(replica)).run(call, next, backAt)
    }
  },
}
