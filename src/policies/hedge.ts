import { z } from 'zod'
import type { Call, Layer } from '../mesh/call.ts'
import type { Millis } from '../mesh/clock.ts'
import type { Policy } from '../mesh/policy.ts'
import { duration } from '../units/duration.ts'
import { Race } from './hedge/race.ts'
import { budgetSchema } from './retry/budget-schema.ts'
import { RetryBudgets } from './retry/budgets.ts'
import { estimateOf, type LatencyEstimate } from './state/estimate.ts'

const quantiles = { p90: 0.9, p95: 0.95, p99: 0.99 } as const

const quantileNames = ['p90', 'p95', 'p99'] as const

const schema = z
  .strictObject({
    after: z
      .union([z.enum(quantileNames), duration({ min: 1 })])
      .describe(
        'How long to wait for an answer before the call is sent once more: a duration, or `p90`, `p95` or `p99` ' +
          'of how long the tool has taken lately. As long as that is not known, nothing is sent twice.',
      ),
    most: z
      .int()
      .min(1)
      .max(3)
      .default(1)
      .describe('Most tries after the first, each after such a wait; 1 to 3.'),
    budget: budgetSchema,
  })
  .describe('Sends a slow call that only reads once more, and takes the answer that comes first.')

/**
 * Hedged requests (Dean and Barroso, "The Tail at Scale", 2013). Only what is known to read alone is sent twice.
 * Each is paid for like a retry, from the same budgets; it is the `retry` policy that pays in, so without it only the
 * floor is there.
 */
export const hedge: Policy<z.output<typeof schema>> & { schema: typeof schema } = {
  schema,
  optIn: true,
  build({ after, most, budget }, kit, scope): Layer {
    const { clock } = kit
    const parts = { clock, most, budgets: new RetryBudgets(kit, scope, budget) }
    const estimates: LatencyEstimate[] = []
    if (typeof after === 'string')
      for (let replica = 0; replica < scope.replicas; replica++)
        estimates.push(estimateOf(kit, scope, replica))

    function delayFor(call: Call, now: Millis): Millis | undefined {
      if (typeof after === 'number') return after
      const only = call.replica ?? scope.home(call.caller)
      const considered = only === undefined ? estimates : estimates.slice(only, only + 1)
      return shortest(considered, quantiles[after], now)
    }

    return (next) => (call) => {
      if (call.signal.aborted || scope.effectOf(call) !== 'read_only') return next(call)
      const now = clock.now()
      const delayMs = delayFor(call, now)
      const isPointless = call.deadline !== undefined && call.deadline.at - now <= (delayMs ?? 0)
      if (delayMs === undefined || isPointless) return next(call)
      return Race.run(call, next, delayMs, parts)
    }
  },
}

/**
 * The quantile of the fastest replica that is known, in whole milliseconds: a call that has got to a slow one is
 * what hedges are for, and the budget keeps their number.
 */
function shortest(estimates: readonly LatencyEstimate[], q: number, now: Millis): Millis | undefined {
  let least: Millis | undefined
  for (const estimate of estimates) {
    const ms = estimate.quantile(q, now)
    if (ms !== undefined && (least === undefined || ms < least)) least = ms
  }
  return least === undefined ? undefined : Math.max(1, Math.ceil(least))
}
