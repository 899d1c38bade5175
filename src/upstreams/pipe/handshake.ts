import type { Signal } from '../../mesh/cancel.ts'
import type { Call, Message, Outcome } from '../../mesh/call.ts'
import { gatewayError, isGatewayError, type GatewayError } from '../../mesh/errors.ts'
import { isObject } from '../../protocol/jsonrpc.ts'
import { isLegacyVersion } from '../../protocol/versions.ts'
import { ownCall } from '../own-call.ts'
import { rawAt } from './renumber.ts'
import { printableWords } from '../../telemetry/printable.ts'

/** How much of a server's own words an error of ours repeats, in characters. */
const EXCERPT = 200

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
  if (isObject(value.error)) {
    const words = printableWords(value.error.message, EXCERPT)
    throw gatewayError('upstream_refused', `the server refused to initialize: ${words}`)
  }
  const result = value.result as Message['value']
  if (!isLegacyVersion(result.protocolVersion)) {
    const version = printableWords(result.protocolVersion, EXCERPT)
    throw gatewayError(
      'upstream_refused',
      `the server speaks version ${version} of the protocol, which we do not`,
    )
  }
  return { text: rawAt(text, ['result']), value: result }
}

/** What a failed opening means for the calls that waited for it: none of them was sent. */
export function openError(cause: unknown): GatewayError {
  if (!isGatewayError(cause)) return gatewayError('internal', 'the conversation could not be opened')
  const reason = cause.reason === 'upstream_disconnected' ? 'upstream_unavailable' : cause.reason
  return { ...cause, reason, sent: false }
}
