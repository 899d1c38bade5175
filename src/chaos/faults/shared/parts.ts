import type { Call, Outcome } from '../../mesh/call.ts'
import { Cancellation } from '../../mesh/cancel.ts'
import { gatewayError, isGatewayError } from '../../mesh/errors.ts'
import type { Shot } from '../fault.ts'

/** All requests that travel to a server on an agent's behalf: a connection does not know a tool call from a list. */
export const requests: readonly string[] = [
  'tools/call',
  'tools/list',
  'prompts/list',
  'prompts/get',
  'resources/list',
  'resources/templates/list',
  'resources/read',
  'completion/complete',
]

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

/** What a call gets while there is no server to connect to: nothing of it was sent. */
export function refuse(call: Call, shot: Shot): Outcome {
  const isProcess = shot.world.kindOf(call.server)?.transport === 'stdio'
  const message = isProcess ? 'cannot start the server (EAGAIN)' : 'cannot connect (ECONNREFUSED)'
  if (shot.side === 'client') return shot.disconnect(call, message)
  return { kind: 'failed', error: gatewayError('upstream_unavailable', message) }
}
