import { z } from 'zod'
import type { Call, Layer, Outcome, Service } from '../mesh/call.ts'
import { gatewayError } from '../mesh/errors.ts'
import type { Policy } from '../mesh/policy.ts'
import { TimeLimit } from '../mesh/time-limit.ts'
import { duration, formatDuration } from '../units/duration.ts'
import { askedLimitMs } from './deadline/asked.ts'

const schema = z
  .strictObject({
    total: duration({ min: 1 })
      .default(55_000)
      .describe(
        'How long a call may take from its arrival, retries and waits included; an agent may ask for less, not for more. Less than the 60 s after which clients of the MCP SDKs give up: an agent then hears why.',
      ),
    reserve: duration()
      .default(50)
      .describe(
        'Kept back for the way home when the server is told how long it has; at most half of the deadline.',
      ),
    forward: z
      .enum(['asked', 'always', 'never'])
      .default('asked')
      .describe(
        'Whether the server is told how long it has, in _meta: if the agent named a deadline itself, always, or never.',
      ),
  })
  .describe('Ends a call whose agent does not wait any longer, however many attempts it is made of.')

/** Gives each call a deadline, and ends it then; the upstream is told to cancel. */
export const deadline: Policy<z.output<typeof schema>> & { schema: typeof schema } = {
  schema,
  use: 'Keep it in force: it is the one limit over all attempts, waits and retries of a call. Shorten `total` to what agents really wait, and lengthen it only for tools that are slow by design; to limit one attempt, use `attemptTimeout`.',
  build({ total, reserve, forward }, { clock }): Layer {
    const limit = new TimeLimit(clock, total)

    /** `afterMs`: when it ends, from now; `ms`: from when it came; `told`: whether its server is told. */
    function run(call: Call, next: Service, ms: number, afterMs: number, told: boolean): Promise<Outcome> {
      const { record } = call
      const reserveMs = told ? Math.min(reserve, ms / 2) : undefined
      return limit.run(call, next, afterMs, () => exceeded(ms, record.sent), {
        deadline: { at: record.startedAt + ms, reserveMs, askedFor: ms < total },
      })
    }

    /** A fallback call has the deadline of the first one: its new tool's may only be earlier, and begins now. */
    function runFallbackCall(call: Call, next: Service, { at, reserveMs }: NonNullable<Call['deadline']>) {
      const own = clock.now() + total
      if (at <= own) return next(call)
      return limit.run(call, next, total, () => exceeded(total, call.record.sent), {
        deadline: { at: own, reserveMs, askedFor: false },
      })
    }

    return (next) => (call) => {
      if (call.deadline !== undefined) return runFallbackCall(call, next, call.deadline)
      const asked = askedLimitMs(call)
      // Nobody counts from the moment of arrival then, and all such calls can share a timer.
      if (asked === undefined) return run(call, next, total, total, forward === 'always')
      const ms = Math.min(asked, total)
      const leftMs = call.record.startedAt + ms - clock.now()
      if (leftMs > 0) return run(call, next, ms, leftMs, forward !== 'never')
      return Promise.resolve({ kind: 'rejected', error: exceeded(ms, call.record.sent), by: 'deadline' })
    }
  },
}

function exceeded(ms: number, sent: boolean) {
  return gatewayError('deadline_exceeded', `no answer within the deadline of ${formatDuration(ms)}`, { sent })
}
