import { z } from 'zod'
import { withSignal, type Layer } from '../mesh/call.ts'
import { Cancellation } from '../mesh/cancel.ts'
import { gatewayError } from '../mesh/errors.ts'
import { ExpiryQueue } from '../mesh/expiry.ts'
import type { Policy } from '../mesh/policy.ts'
import { duration } from '../units/duration.ts'

const schema = z
  .strictObject({
    timeout: duration({ min: 1 })
      .default(60_000)
      .describe('How long one attempt may take, to its last byte.'),
  })
  .describe('Ends an attempt that takes too long.')

/** Ends one attempt at an upstream after `timeout`; the upstream is told to cancel it. */
export const attemptTimeout: Policy<z.output<typeof schema>> & { schema: typeof schema } = {
  schema,
  build({ timeout }, { clock }): Layer {
    const timeouts = new ExpiryQueue(clock, timeout)
    return (next) => (call) => {
      const attempt = new Cancellation()
      const follow = () => attempt.abort(call.signal.reason)
      if (call.signal.aborted) follow()
      else call.signal.addEventListener('abort', follow)
      const expiry = timeouts.add(() => {
        const { sent } = call.record
        attempt.abort(gatewayError('attempt_timeout', `no answer within ${timeout} ms`, { sent }))
      })
      return next(withSignal(call, attempt)).then((outcome) => {
        timeouts.remove(expiry)
        call.signal.removeEventListener('abort', follow)
        return outcome
      })
    }
  },
}
