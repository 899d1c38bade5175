import { z } from 'zod'
import { duration } from '../../units/duration.ts'
import { rate } from './rate.ts'

const quota = z
  .strictObject({
    calls: z.int().min(1).max(100_000).describe('How many calls the server grants.'),
    per: duration({ min: 1 }).describe('In which time; the quota holds for every span of that length.'),
    minTime: duration().default(0).describe('Shortest time between the starts of two calls.'),
    queue: z.int().min(0).max(10_000).describe('How many calls may wait for their turn; 0: none.'),
    maxWait: duration({ min: 1 })
      .default(10_000)
      .describe('How long a call waits at most. One that would have to wait longer is rejected at once.'),
  })
  .describe('A quota that the server is contracted to: calls beyond it wait for their turn.')

/** The settings of `rateLimit`. */
export const schema = z
  .strictObject({
    rate: rate()
      .optional()
      .describe(
        'Most calls in the long run: 100/s, 60/m, 1000/h, or a number of calls per second. Default: 100/s, or none where a quota is given.',
      ),
    burst: z
      .int()
      .min(1)
      .max(1_000_000)
      .optional()
      .describe(
        'How many calls may come at once after a pause. Default: the calls of one second, at least 1.',
      ),
    per: z
      .enum(['server', 'tool', 'tenant'])
      .default('server')
      .describe(
        'Whether all calls of a server share the rate, or each of its tools or each tenant has its own; all names of tenants that are new count as one.',
      ),
    quota: quota.optional().describe('Default: none.'),
  })
  .superRefine(({ rate, burst, quota }, context) => {
    if (burst === undefined || rate !== undefined || quota === undefined) return
    const message = 'burst needs a rate: a quota has none'
    context.addIssue({ code: 'custom', path: ['burst'], message })
  })
  .describe('Limits how fast calls go to a server.')
