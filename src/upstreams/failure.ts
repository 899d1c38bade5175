import { Cancellation, type Signal } from '../mesh/cancel.ts'
import type { Call, Outcome } from '../mesh/call.ts'
import type { Clock, Millis } from '../mesh/clock.ts'
import { gatewayError, isGatewayError, type GatewayError } from '../mesh/errors.ts'
import { formatDuration } from '../units/duration.ts'

/** Returns the outcome of a call without a reply; the call's record says whether the call was sent. */
export function failure(call: Call, error: GatewayError): Outcome {
  const { sent } = call.record
  return { kind: 'failed', error: error.sent === sent ? error : { ...error, sent } }
}

export function abortError(signal: Signal): GatewayError {
  const reason: unknown = signal.reason
  return isGatewayError(reason) ? reason : gatewayError('cancelled', 'the caller gave up')
}

/** Returns the promise's value; throws the signal's reason if the signal aborts first. */
export function orAborted<T>(promise: Promise<T>, signal: Signal): Promise<T> {
  return new Promise((resolve, reject) => {
    const aborted = () => reject(abortError(signal))
    if (signal.aborted) aborted()
    else signal.addEventListener('abort', aborted, { once: true })
    promise.then(resolve, reject).finally(() => signal.removeEventListener('abort', aborted))
  })
}

/** Runs a task under a signal that aborts with `signal`, or after `ms`. Settles like the task. */
export function within<T>(
  ms: Millis,
  clock: Pick<Clock, 'after'>,
  signal: Signal,
  task: (limit: Signal) => Promise<T>,
): Promise<T> {
  const limit = new Cancellation()
  const aborted = () => limit.abort(signal.reason)
  if (signal.aborted) aborted()
  else signal.addEventListener('abort', aborted)
  const cancel = clock.after(ms, () => {
    limit.abort(
      gatewayError('attempt_timeout', `the server did not answer the gateway within ${formatDuration(ms)}`),
    )
  })
  return task(limit).finally(() => {
    cancel()
    signal.removeEventListener('abort', aborted)
  })
}

/** Runs `task` once the signal aborts with an error of the gateway; at once if already aborted. */
export function whenAborted(signal: Signal, task: (error: GatewayError) => void): void {
  const aborted = () => task(signal.reason as GatewayError)
  if (signal.aborted) aborted()
  else signal.addEventListener('abort', aborted, { once: true })
}
