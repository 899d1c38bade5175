import type { Signal } from '../../mesh/cancel.ts'
import type { Call, Message, Outcome } from '../../mesh/call.ts'
import { gatewayError, isGatewayError, type GatewayError } from '../../mesh/errors.ts'
import { isObject } from '../../protocol/jsonrpc.ts'
import { assertLegacy, greetingOf, refusedBy } from '../greeting.ts'
import { ownCall } from '../own-call.ts'
import { rawAt } from './renumber.ts'

/** Says hello; resolves to the `initialize` result. Rejects with a `GatewayError`. */
export async function handshake(
  exchange: (call: Call) => Promise<Outcome>,
  server: string,
  hello: Readonly<Record<string, unknown>>,
  signal: Signal,
): Promise<Message> {
  const outcome = await exchange(ownCall(server, 'initialize', hello, signal))
  if (outcome.kind !== 'answered') throw outcome.error
  const { text, value } = outcome.result
  if (isObject(value.error)) throw refusedBy('the server refused to initialize', value.error)
  if (!isObject(value.result)) throw gatewayError('bad_reply', 'initialize has no result', { sent: true })
  assertLegacy(value.result)
  return greetingOf(rawAt(text, ['result']), value.result)
}

/** What a failed opening means for the calls that waited for it: none of them was sent. */
export function openError(cause: unknown): GatewayError {
  if (!isGatewayError(cause)) return gatewayError('internal', 'the conversation could not be opened')
  const reason = cause.reason === 'upstream_disconnected' ? 'upstream_unavailable' : cause.reason
  return { ...cause, reason, sent: false }
}
