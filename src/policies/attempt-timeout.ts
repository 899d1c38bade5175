import { z } from 'zod'
import type { Layer } from '../mesh/call.ts'
import { gatewayError } from '../mesh/errors.ts'
import type { Policy } from '../mesh/policy.ts'
import { TimeLimit } from '../mesh/time-limit.ts'
import { duration, formatDuration } from '../units/duration.ts'

const schema = z
  .strictObject({
    timeout: duration({ min: 1 })
      .default(60_000)
      .describe(
        'How long one attempt may take, to its last byte. The default counts only where `deadline` is off or longer than that. The wait for an agent that is asked does not count.',
      ),
  })
  .describe('Ends an attempt that takes too long.')

/** Ends one attempt at an upstream after `timeout`; the upstream is told to cancel it. */
export const attemptTimeout: Policy<z.output<typeof schema>> & { schema: typeof schema } = {
  schema,
  use: 'Use it with a timeout shorter than the deadline for tools whose usual time is known, so that a retry or another replica still has time. Leave the default for tools that may run long, and for writes, which cannot be sent again after a timeout.',
  perAttempt: true,
  build({ timeout }, { clock }): Layer {
    const limit = new TimeLimit(clock, timeout)
    return (next) => (call) => {
      // The deadline ends the call no later: a second timer would find nothing to do.
      if (call.deadline !== undefined && call.deadline.at - clock.now() <= timeout) return next(call)
      return limit.run(call, next, timeout, () =>
        gatewayError('attempt_timeout', `no answer within ${formatDuration(timeout)}`, {
          sent: call.record.sent,
        }),
      )
    }
  },
}
