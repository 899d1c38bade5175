import type { Call, Outcome } from '../../../mesh/call.ts'
import { Cancellation } from '../../../mesh/cancel.ts'
import { gatewayError, isGatewayError } from '../../../mesh/errors.ts'

/** What becomes of a call whose signal has aborted. */
export function givenUp({ signal, record }: Call): Outcome {
  const { reason } = signal
  const error = isGatewayError(reason) ? reason : gatewayError('cancelled', 'the caller gave up')
  return { kind: 'failed', error: { ...error, sent: record.sent } }
}

/** The outcome, unless the call's signal aborts before it is there: a call that nobody waits for is not held. */
export function orGivenUp(outcome: Promise<Outcome>, call: Call): Promise<Outcome> {
  const { signal } = call
  return new Promise((resolve, reject) => {
    const aborted = () => resolve(givenUp(call))
    if (signal.aborted) return aborted()
    signal.addEventListener('abort', aborted, { once: true })
    outcome.finally(() => signal.removeEventListener('abort', aborted)).then(resolve, reject)
  })
}

/** An end of a fault's own for what belongs to a call; the call's own end is one too until `leave` is called. */
export function endOf({ signal }: Call): { readonly end: Cancellation; readonly leave: () => void } {
  const end = new Cancellation()
  const follow = () => end.abort(signal.reason)
  if (signal.aborted) follow()
  else signal.addEventListener('abort', follow, { once: true })
  return { end, leave: () => signal.removeEventListener('abort', follow) }
}
