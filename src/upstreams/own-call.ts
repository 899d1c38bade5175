import type { Signal } from '../mesh/cancel.ts'
import { newRecord, type Call, type Caller, type Channel, type Message } from '../mesh/call.ts'
import { requestText } from '../protocol/jsonrpc.ts'
import { gatewayError, type GatewayError } from '../mesh/errors.ts'
import { about } from '../mesh/injected.ts'
import { isLegacyVersion } from '../protocol/versions.ts'
import { printable, printableWords } from '../telemetry/printable.ts'
import type { Conceal } from './server-words.ts'

/** The gateway itself as a caller: messages for it are dropped. */
const nobody: Caller = {
  id: '',
  initializeParams: {},
  listening: false,
  era: 'legacy',
  receive: () => undefined,
}
const nowhere: Channel = { open: () => undefined, pause: () => undefined, send: () => undefined }

export function ownCall(
  server: string,
  method: string,
  params: Readonly<Record<string, unknown>>,
  signal: Signal,
): Call {
  const text = requestText(0, method, params)
  const message: Message = { text, value: { jsonrpc: '2.0', id: 0, method, params } }
  return {
    server,
    method,
    tool: undefined,
    id: 0,
    message,
    headers: undefined,
    inbound: {},
    tenant: '',
    countsAs: '',
    caller: nobody,
    channel: nowhere,
    signal,
    deadline: undefined,
    attempt: 1,
    replica: undefined,
    record: newRecord(0),
  }
}

/** Largest `initialize` result, in bytes: each upstream session keeps its result in memory. */
const MAX_INITIALIZE_RESULT = 256 * 1024

/** Longest part of a server's words in an error, in characters. */
const EXCERPT = 200

/** Returns a server's `initialize` result for keeping. Throws a `GatewayError` when the result is too large. */
export function initializeResultOf(text: string, value: Message['value']): Message {
  const bytes = Buffer.from(text)
  if (bytes.length > MAX_INITIALIZE_RESULT) {
    const message = `the server's initialize result is larger than ${MAX_INITIALIZE_RESULT} bytes`
    throw gatewayError('bad_reply', message, { sent: true })
  }
  // Copies the text via bytes: a slice would keep the whole reply in memory.
  return { text: bytes.toString(), value }
}

/** Throws a `GatewayError` unless the result is for a version of the legacy era. */
export function assertLegacy(result: Message['value'], conceal: Conceal): void {
  const { protocolVersion: version } = result
  if (isLegacyVersion(version)) return
  const named = typeof version === 'string' ? printable(conceal(version), EXCERPT) : '(none is named)'
  const message = `the server speaks version ${named} of the protocol, unknown to Breakwater`
  throw about(result, gatewayError('upstream_refused', message))
}

/**
 * Returns the error for a refused request of the gateway, in the server's words; `status`: the HTTP status of the
 * refusal.
 */
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
