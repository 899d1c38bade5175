import type { IncomingHttpHeaders } from 'node:http'
import type { Message, RequestId } from '../../mesh/call.ts'
import {
  INVALID_PARAMS,
  INVALID_REQUEST,
  isObject,
  isRequestId,
  kindOf,
  paramsOf,
} from '../../protocol/jsonrpc.ts'
import {
  CLIENT_CAPABILITIES_KEY,
  CLIENT_INFO_KEY,
  decodeHeaderValue,
  HEADER_MISMATCH,
  LOG_LEVEL_KEY,
  MODERN_VERSION,
  PROTOCOL_VERSION_KEY,
  UNSUPPORTED_VERSION,
  legacyVersions,
  onceGiven,
} from '../../protocol/versions.ts'
import { refusal, type Refusal } from '../http/post-reply.ts'

/** The facts about the client in a modern request. Legacy clients send these facts once for a session. */
export interface Envelope {
  readonly id: RequestId
  readonly method: string
  readonly clientInfo: unknown
  readonly capabilities: Readonly<Record<string, unknown>>
  /** The least severe log level that the client wants; undefined for no log messages. */
  readonly logLevel: string | undefined
}

/** All supported protocol versions, the newest first. */
export const supportedVersions = [MODERN_VERSION, ...legacyVersions] as const

/** The param that the header `Mcp-Name` must repeat, by method. */
const named: Readonly<Record<string, string>> = {
  'tools/call': 'name',
  'prompts/get': 'name',
  'resources/read': 'uri',
  'tasks/get': 'taskId',
  'tasks/update': 'taskId',
  'tasks/cancel': 'taskId',
}

/** Returns the facts in a request, or a refusal. Checks the facts in the order of the specification. */
export function readEnvelope(headers: IncomingHttpHeaders, { value }: Message): Envelope | Refusal {
  const id = isRequestId(value.id) ? value.id : null
  if (kindOf(value) !== 'request' || id === null)
    return refusal(400, null, INVALID_REQUEST, 'Invalid Request: expected a request')
  const params = paramsOf(value)
  const meta = params._meta
  const incomplete = whatIsMissing(meta)
  if (incomplete !== undefined)
    return refusal(400, id, INVALID_PARAMS, 'Invalid _meta', { envelope: incomplete })
  const known = meta as Record<string, unknown>
  const method = value.method as string
  const version = known[PROTOCOL_VERSION_KEY]
  const early =
    mismatchOf(headers, 'MCP-Protocol-Version', version) ?? mismatchOf(headers, 'Mcp-Method', method)
  if (early !== undefined) return refuseMismatch(id, early)
  if (version !== MODERN_VERSION) {
    return refusal(400, id, UNSUPPORTED_VERSION, 'Unsupported protocol version', {
      supported: [MODERN_VERSION],
      requested: version,
    })
  }
  const key = named[method]
  const name = key === undefined ? undefined : params[key]
  const mismatch = typeof name === 'string' ? mismatchOf(headers, 'Mcp-Name', name) : undefined
  if (mismatch !== undefined) return refuseMismatch(id, mismatch)
  const level = known[LOG_LEVEL_KEY]
  return {
    id,
    method,
    clientInfo: known[CLIENT_INFO_KEY],
    capabilities: known[CLIENT_CAPABILITIES_KEY] as Record<string, unknown>,
    logLevel: typeof level === 'string' ? level : undefined,
  }
}

function whatIsMissing(meta: unknown): object | undefined {
  if (!isObject(meta)) return { missing: ['_meta'] }
  if (typeof meta[PROTOCOL_VERSION_KEY] !== 'string') return { missing: [PROTOCOL_VERSION_KEY] }
  if (isObject(meta[CLIENT_CAPABILITIES_KEY])) return undefined
  return { key: CLIENT_CAPABILITIES_KEY, problem: CLIENT_CAPABILITIES_KEY in meta ? 'invalid' : 'missing' }
}

/** Returns the `Mcp-Param-…` headers, which repeat arguments of a tool; undefined without any. */
export function mirroredHeaders(headers: IncomingHttpHeaders): Record<string, string> | undefined {
  let mirrored: Record<string, string> | undefined
  for (const name in headers) {
    const value = headers[name]
    if (name.startsWith('mcp-param-') && typeof value === 'string') (mirrored ??= {})[name] = value
  }
  return mirrored
}

interface Mismatch {
  readonly message: string
  readonly header: string
  readonly body: unknown
}

/** Returns an error when a header differs from its value in the body; undefined when both are equal. */
function mismatchOf(headers: IncomingHttpHeaders, name: string, body: unknown): Mismatch | undefined {
  const header = headers[name.toLowerCase()]
  const value = typeof header === 'string' ? decodeHeaderValue(header) : undefined
  if (value === body || (typeof header === 'string' && decodeHeaderValue(onceGiven(header)) === body))
    return undefined
  const seen = typeof header === 'string' ? header.slice(0, 200) : '(missing)'
  return { message: `Header mismatch: ${name}`, header: seen, body }
}

function refuseMismatch(id: RequestId, mismatch: Mismatch): Refusal {
  return refusal(400, id, HEADER_MISMATCH, mismatch.message, { mismatch })
}
