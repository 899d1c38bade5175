import type { Message } from '../mesh/call.ts'
import { gatewayError, type GatewayError } from '../mesh/errors.ts'
import { about } from '../mesh/injected.ts'
import { isLegacyVersion } from '../protocol/versions.ts'
import { printable, printableWords } from '../telemetry/printable.ts'
import type { Conceal } from './server-words.ts'

/** Largest `initialize` result of a server, in bytes: each upstream session keeps one, its instructions included. */
const MAX_INITIALIZE_RESULT = 256 * 1024

/** How much of a server's own words an error of ours repeats, in characters. */
const EXCERPT = 200

/** What a server says of itself, to be kept. Throws a `GatewayError` when it is too large. */
export function initializeResultOf(text: string, value: Message['value']): Message {
  const bytes = Buffer.from(text)
  if (bytes.length > MAX_INITIALIZE_RESULT) {
    const message = `what the server says of itself is larger than ${MAX_INITIALIZE_RESULT} bytes`
    throw gatewayError('bad_reply', message, { sent: true })
  }
  // By way of bytes: a slice would hold on to the whole reply that it is of.
  return { text: bytes.toString(), value }
}

/** The result is for a version of the legacy era; throws a `GatewayError` for any other. */
export function assertLegacy(result: Message['value'], conceal: Conceal): void {
  const { protocolVersion: version } = result
  if (isLegacyVersion(version)) return
  const named = typeof version === 'string' ? printable(conceal(version), EXCERPT) : '(none is named)'
  const message = `the server speaks version ${named} of the protocol, which we do not`
  throw about(result, gatewayError('upstream_refused', message))
}

/** That a server refused a request of ours, in its own words; `status` is the HTTP status that these came with. */
export function refusedBy(
  what: string,
  error: Readonly<Record<string, unknown>>,
  conceal: Conceal,
  status?: number,
): GatewayError {
  const { message } = error
  const words = printableWords(typeof message === 'string' ? conceal(message) : message, EXCERPT)
  return about(error, gatewayError('upstream_refused', `${what}: ${words}`, { status }))
}
