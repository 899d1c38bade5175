import { z } from 'zod'
import { duration } from '../../units/duration.ts'
import { LONGEST_WINDOW_MS } from '../state/retry-budget.ts'

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
