import { z } from 'zod'
import type { Layer } from '../mesh/call.ts'
import type { Policy } from '../mesh/policy.ts'
import { duration } from '../units/duration.ts'
import { budgetSchema } from './retry/budget-schema.ts'
import { RetryBudgets } from './retry/budgets.ts'
import { Retries } from './retry/retries.ts'
import { isWorthRetrying } from './retry/rules.ts'

const schema = z
  .strictObject({
    attempts: z.int().min(0).max(10).default(2).describe('Most tries after the first, 0 to 10.'),
    base: duration({ min: 1 })
      .default(100)
      .describe(
        'Longest wait before the first retry; it doubles with each. The wait is drawn from 0 up to it.',
      ),
    cap: duration({ min: 1 })
      .default(2_000)
      .describe('Longest wait before any retry, unless the server asks for more.'),
    budget: budgetSchema,
    incorrect: z
      .boolean()
      .default(false)
      .describe('Whether answers that are wrong (see `verdict`) are asked for again.'),
  })
  .refine(({ base, cap }) => base <= cap, {
    path: ['base'],
    error: '`base` is the shortest of the longest waits: expected at most `cap`',
  })
  .describe('Sends a failed call again, when that can do no harm: within a budget, and within its deadline.')

/** Sends failed calls again; see `retry/rules.ts` for which, and `state/retry-budget.ts` for how many. */
export const retry: Policy<z.output<typeof schema>> & { schema: typeof schema } = {
  schema,
  build({ budget, ...config }, kit, scope): Layer {
    const budgets = new RetryBudgets(kit, scope, budget)
    const parts = { ...config, kit, scope, budgets }
    const leave = () => budgets.leave()
    const broke = (cause: unknown) => {
      leave()
      throw cause
    }
    return (next) => (call) => {
      const hedgesBefore = call.record.hedges
      const first = next(call)
      budgets.enter(kit.clock.now())
      return first.then((outcome) => {
        if (isWorthRetrying(outcome, config.incorrect))
          return Promise.resolve(new Retries(call, next, parts, hedgesBefore).after(outcome)).finally(leave)
        leave()
        return outcome
      }, broke)
    }
  },
}
