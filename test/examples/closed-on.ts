import { z } from 'zod'
import { gatewayError, type PolicyReason } from '../../src/mesh/errors.ts'
import { Fact } from '../../src/mesh/record.ts'
import { counter } from '../../src/mesh/metric-spec.ts'
import type { Policy } from '../../src/mesh/policy.ts'

const days = ['sunday', 'monday', 'tuesday', 'wednesday', 'thursday', 'friday', 'saturday'] as const

const schema = z
  .strictObject({
    days: z.array(z.enum(days)).default(['sunday']).describe('Days of the week, in UTC.'),
  })
  .describe('Rejects calls on some days of the week.')

const closedToday: PolicyReason = {
  name: 'closed_today',
  code: 1503,
  retryable: true,
  about: 'The server takes no calls on this day of the week.',
}

const cameOn = new Fact<string | undefined>(undefined, {
  about: 'The day on which the call was turned away.',
  log: 'cameOn',
  attribute: 'breakwater.came_on',
  event: (day) => ({ decision: 'turned_away', reason: String(day) }),
  counting: {
    metric: counter(
      'closed_days_total',
      'Calls that were turned away, by day.',
      ['server', 'day'],
      'servers × 7',
    ),
    labels: (day) => ({ day: String(day) }),
  },
})

const DAY_MS = 86_400_000

/** Rejects calls while the server is closed for the day, with the start of the next day. */
export const closedOn: Policy<z.output<typeof schema>> & { schema: typeof schema } = {
  schema,
  use: 'Use it for servers that are switched off on certain days of the week. It knows no holidays and no hours.',
  optIn: true,
  reasons: [closedToday],
  facts: [cameOn],
  build({ days: closed }, { clock }, { server }) {
    return (next) => (call) => {
      const now = clock.wall()
      const today = days[new Date(now).getUTCDay()]
      if (today === undefined || !closed.includes(today)) return next(call)
      cameOn.note(call.record, today)
      const error = gatewayError(closedToday, `${server} is closed on ${today}`, {
        retryAfterMs: DAY_MS - (now % DAY_MS),
      })
      return Promise.resolve({ kind: 'rejected', error, by: 'closedOn' })
    }
  },
}
