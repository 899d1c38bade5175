import type { Call, Outcome } from '../../../mesh/call.ts'
import { gatewayError } from '../../../mesh/errors.ts'
import type { Shot } from '../../fault.ts'

/** What a call gets while there is no server to connect to: nothing of it was sent. */
export function refuse(call: Call, shot: Shot): Outcome {
  const isProcess = shot.world.kindOf(call)?.transport === 'stdio'
  const message = isProcess ? 'cannot start the server (EAGAIN)' : 'cannot connect (ECONNREFUSED)'
  if (shot.side === 'client') return shot.disconnect(call, message)
  return { kind: 'failed', error: gatewayError('upstream_unavailable', message) }
}
