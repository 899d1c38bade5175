import { z } from 'zod'
import type { Layer } from '../mesh/call.ts'
import { withSignal } from '../mesh/call.ts'
import { gatewayError } from '../mesh/errors.ts'
import type { Policy } from '../mesh/policy.ts'
import { duration } from '../units/duration.ts'

const schema = z
  .strictObject({
    timeout: duration({ min: 1 }).default(60_000).describe('How long one attempt may take, to its last byte.'),
  })
  .describe('Ends an attempt that takes too long.')

/** Ends one attempt at an upstream after `timeout`; the upstream is told to cancel it. */
export const attemptTimeout: Policy<z.output<typeof schema>> & { schema: typeof schema } = {
  schema,
  build({ timeout }, { clock }): Layer {
    return (next) => (call) => {
      const controller = new AbortController()
      const follow = () => controller.abort(call.signal.reason)
      if (call.signal.aborted) follow()
      else call.signal.addEventListener('abort', follow)
      const cancel = clock.after(timeout, () => {
        controller.abort(
          gatewayError('attempt_timeout', `no answer within ${timeout} ms`, {
            sent: call.record.sent,
          }),
        )
      })
      return next(withSignal(call, controller.signal)).finally(() => {
        cancel()
        call.signal.removeEventListener('abort', follow)
      })
    }
  },
}
