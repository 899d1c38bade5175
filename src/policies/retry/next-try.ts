import { derive, type Call, type CallChanges, type Outcome } from '../../mesh/call.ts'

const ATTEMPT_HEADER = 'x-breakwater-attempt'

/** By these whoever calls us says which try of theirs it is. */
const inboundHeaders = [ATTEMPT_HEADER, 'x-envoy-attempt-count']

/** The call once more, as try number `attempt`. Servers behind HTTP are told, so that none of them retries a retry. */
export function nextTry(call: Call, attempt: number, changes: CallChanges = {}): Call {
  changes.attempt = attempt
  if (attempt > 1) changes.headers = { ...call.headers, [ATTEMPT_HEADER]: String(attempt) }
  return derive(call, changes)
}

/** Whether a call came to us as somebody's retry: whoever is outermost retries, or tries multiply. */
export function isInboundRetry({ inbound }: Call): boolean {
  return inboundHeaders.some((name) => {
    const attempt = Number(inbound[name])
    return Number.isInteger(attempt) && attempt >= 2
  })
}

/** The outcome of a call that had several tries: when one of them may have run, the call may have run. */
export function withSent(outcome: Outcome, sent: boolean): Outcome {
  if (outcome.kind !== 'failed' || !sent || outcome.error.sent) return outcome
  return { kind: 'failed', error: { ...outcome.error, sent } }
}
