import { z } from 'zod'
import type { Layer } from '../mesh/call.ts'
import type { Policy } from '../mesh/policy.ts'
import { duration } from '../units/duration.ts'
import { Pool } from './bulkhead/pool.ts'
import { Kept } from './state/kept.ts'

const schema = z
  .strictObject({
    concurrent: z
      .int()
      .min(1)
      .max(10_000)
      .default(64)
      .describe(
        'How many calls of one server run at once. One whose agent is asked something by the server does not count until it has answered. Overrides with other numbers have slots of their own.',
      ),
    perTool: z
      .int()
      .min(1)
      .max(10_000)
      .optional()
      .describe(
        'How many of them may be calls of one tool; requests that are for no listed tool count as one tool. Default: as many as are still free, so that a tool alone stops at half, a second one at half of the rest, and a third one still finds room.',
      ),
    queue: z
      .int()
      .min(0)
      .max(4_096)
      .default(64)
      .describe('How many calls may wait for a slot, earliest deadline first; 0: none.'),
    maxWait: duration({ min: 1 }).default(5_000).describe('How long a call waits for a slot at most.'),
    tenantShare: z
      .number()
      .min(0.01)
      .max(1)
      .default(0.5)
      .describe('Largest share of the slots that one tenant gets while others wait; alone it may use all.'),
  })
  .superRefine(({ concurrent, perTool }, context) => {
    if (perTool === undefined || perTool <= concurrent) return
    const message = `perTool must not exceed concurrent (${concurrent})`
    context.addIssue({ code: 'custom', path: ['perTool'], message })
  })
  .describe('Limits how many calls of a server run at once, so that a slow one cannot take everything.')

/**
 * Limits concurrency per server and per tool; calls over the limit wait in a bounded queue, earliest deadline first,
 * with a fair share for every tenant. A call that finds no place, or no slot in time, is rejected.
 */
export const bulkhead: Policy<z.output<typeof schema>> & { schema: typeof schema } = {
  schema,
  build({ perTool, ...settings }, { clock, state }, { set, server, tool }): Layer {
    const pools = state.get({ kind: 'bulkhead', set, server }, () => new Kept<Pool>())
    const pool = pools.get(settings, () => new Pool(server, settings, clock))
    const slots = pool.tool(tool, perTool)
    return (next) => (call) => pool.run(call, slots, next)
  },
}
