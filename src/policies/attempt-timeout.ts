import { z } from 'zod'
import type { Layer } from '../mesh/call.ts'
import { gatewayError } from '../mesh/errors.ts'
import type { Policy } from '../mesh/policy.ts'
import { type Extension, TimeLimit } from '../mesh/time-limit.ts'
import { duration, formatDuration } from '../units/duration.ts'

const schema = z
  .strictObject({
    timeout: duration({ min: 1 })
      .default(60_000)
      .describe(
        "How long an attempt may take, to its last byte. The default counts only where `deadline` is off or longer. Time in which the server waits for the agent's answer to its question does not count.",
      ),
    onProgress: z
      .enum(['extend', 'ignore'])
      .default('extend')
      .describe(
        "The effect of progress, if the call's agent asked for progress: it restarts the attempt's whole `timeout`, like resetTimeoutOnProgress of the MCP SDKs, or has no effect. The deadline of the call stays.",
      ),
    maxTotalTimeout: duration({ min: 1 })
      .default(600_000)
      .describe('The longest total time of an attempt that progress extends; never less than `timeout`.'),
  })
  .describe('Ends an attempt that takes too long.')

/** Ends an attempt at an upstream after `timeout`; tells the upstream to cancel. */
export const attemptTimeout: Policy<z.output<typeof schema>> & { schema: typeof schema } = {
  schema,
  use: 'Use it with a timeout shorter than the deadline for tools whose usual time is known: a retry or another replica then still has time. Leave the default for tools that may run long, and for writes, which cannot be sent again after a timeout.',
  perAttempt: true,
  followsTask: true,
  build({ timeout, onProgress, maxTotalTimeout }, { clock }): Layer {
    const limit = new TimeLimit(clock, timeout)
    const longest = onProgress === 'extend' ? Math.max(timeout, maxTotalTimeout) : timeout
    const words = {
      silence: `no answer, and no progress for ${formatDuration(timeout)}`,
      longest: `no answer within ${formatDuration(longest)}, despite progress`,
    }
    return (next) => (call) => {
      // The deadline ends the call first, so the attempt needs no timer of its own.
      const { deadline } = call
      if (deadline !== undefined && (deadline.latest ?? deadline.at) - clock.now() <= timeout)
        return next(call)
      const tooLong = (extension?: Extension) =>
        gatewayError(
          'attempt_timeout',
          extension === undefined ? `no answer within ${formatDuration(timeout)}` : words[extension],
          { sent: call.record.sent },
        )
      return limit.run(call, next, timeout, tooLong, {}, longest)
    }
  },
}
