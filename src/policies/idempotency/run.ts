import { derive, type Call, type Channel, type Outcome, type Service } from '../../mesh/call.ts'
import type { Signal } from '../../mesh/cancel.ts'
import type { Clock, Millis } from '../../mesh/clock.ts'
import { gatewayError } from '../../mesh/errors.ts'
import type { TimeLimit } from '../../mesh/time-limit.ts'

export interface DetachedParts {
  readonly call: Call
  readonly next: Service
  readonly channel: Channel
  readonly limit: TimeLimit
  readonly limitMs: Millis
  readonly clock: Clock
}

/** Nobody ends such a call but its time limit. */
const never: Signal = {
  aborted: false,
  reason: undefined,
  addEventListener: () => undefined,
  removeEventListener: () => undefined,
}

/**
 * Runs a call apart from its caller: neither the caller's going nor its deadline ends it, only the limit does.
 * `over` is told how it ended, before anybody else is, and never before this has returned.
 */
export function runDetached(
  { call, next, channel, limit, limitMs, clock }: DetachedParts,
  over: (outcome: Outcome) => void,
): Promise<Outcome> {
  const { record } = call
  const deadline = { at: clock.now() + limitMs, reserveMs: call.deadline?.reserveMs, askedFor: false }
  const detached = derive(call, { signal: never, channel, deadline })
  const tooLong = () =>
    gatewayError('deadline_exceeded', `no answer within ${limitMs} ms, the limit of calls with a key`, {
      sent: record.sent,
    })
  return new Promise<Outcome>((resolve) => resolve(limit.run(detached, next, limitMs, tooLong))).then(
    (outcome) => {
      over(outcome)
      return outcome
    },
    (defect: unknown) => {
      over({ kind: 'failed', error: gatewayError('internal', 'internal error', { sent: record.sent }) })
      throw defect
    },
  )
}
