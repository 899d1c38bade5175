import { z } from 'zod'
import type { RetryRefusal } from '../../mesh/call.ts'
import type { Millis } from '../../mesh/clock.ts'
import type { Kit, Scope } from '../../mesh/policy.ts'
import { duration } from '../../units/duration.ts'
import { type BudgetTerms, LONGEST_WINDOW_MS, RetryBudget } from '../state/retry-budget.ts'

/** Under this name of a server the budget of the whole gateway is kept. */
const GATEWAY = ''

/** The two budgets that a retry needs to be in: that of its server, and that of the whole gateway. */
export class RetryBudgets {
  readonly #server: RetryBudget
  readonly #gateway: RetryBudget
  readonly #terms: BudgetTerms

  constructor({ clock, state }: Pick<Kit, 'clock' | 'state'>, { set, server }: Scope, terms: BudgetTerms) {
    const budgetOf = (owner: string) =>
      state.get({ kind: 'retry-budget', set, server: owner }, () => new RetryBudget(clock, terms))
    this.#server = budgetOf(server)
    this.#gateway = budgetOf(GATEWAY)
    this.#terms = terms
  }

  /** A call begins. */
  enter(now: Millis): void {
    this.#server.enter(now)
    this.#gateway.enter(now)
  }

  /** It is over, with all its tries. */
  leave(): void {
    this.#server.leave()
    this.#gateway.leave()
  }

  /** Takes a retry from both, or from neither: then it says why. Every one that is granted needs a `release`. */
  claim(now: Millis): RetryRefusal | undefined {
    if (this.#server.balance(this.#terms, now) < 1) return 'server_budget'
    if (this.#gateway.balance(this.#terms, now) < 1) return 'gateway_budget'
    if (!this.#server.hasRoom(this.#terms)) return 'concurrency'
    this.#server.withdraw(now)
    this.#gateway.withdraw(now)
    return undefined
  }

  /** A retry is over, or will not be sent after all. */
  release(): void {
    this.#server.release()
    this.#gateway.release()
  }
}

/** The part of a config that says how much may be sent again: the same for retries and for hedges. */
export const budgetSchema = z
  .strictObject({
    ratio: z
      .number()
      .min(0)
      .max(1)
      .default(0.2)
      .describe('Share of the calls of a window that may be sent again, 0 to 1.'),
    floor: z
      .number()
      .min(0)
      .max(1_000)
      .default(5)
      .describe(
        'Retries a second that are allowed however few calls there are; the larger of the two counts.',
      ),
    window: duration({ min: 1_000, max: LONGEST_WINDOW_MS })
      .default(10_000)
      .describe('How far back calls and retries count; whole seconds.'),
    concurrency: z
      .number()
      .min(0)
      .max(1)
      .default(0.2)
      .describe('Share of the calls under way to a server that may be retries, 0 to 1.'),
    leastConcurrent: z
      .int()
      .min(0)
      .max(10_000)
      .default(3)
      .describe('Retries under way to a server that are allowed however few calls there are.'),
  })
  .prefault({})
  .describe('How much may be sent again, per server and in the whole gateway. Retries and hedges share it.')
