import type { Call, Outcome } from '../../mesh/call.ts'
import { gatewayError, isGatewayError } from '../../mesh/errors.ts'

/** Returns the outcome of a call whose signal aborted during a wait; `message` if the signal gives no reason. */
export function givenUp({ signal, record }: Call, message: string): Outcome {
  const { reason } = signal
  const error = isGatewayError(reason) ? reason : gatewayError('cancelled', message)
  return { kind: 'failed', error: error.sent === record.sent ? error : { ...error, sent: record.sent } }
}
