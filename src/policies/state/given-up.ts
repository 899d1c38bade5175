import type { Call, Outcome } from '../../mesh/call.ts'
import { gatewayError, isGatewayError } from '../../mesh/errors.ts'

/** The end of a call whose signal aborted while a policy made it wait; `message` if the signal gives no reason. */
export function givenUp({ signal, record }: Call, message: string): Outcome {
  const { reason } = signal
  const error = isGatewayError(reason) ? reason : gatewayError('cancelled', message)
  return { kind: 'failed', error: error.sent === record.sent ? error : { ...error, sent: record.sent } }
}
