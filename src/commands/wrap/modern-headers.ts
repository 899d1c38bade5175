import { isObject, paramsOf } from '../../protocol/jsonrpc.ts'
import { encodeHeaderValue, PROTOCOL_VERSION_KEY } from '../../protocol/modern.ts'

/** Parameters that name what a request is about. */
const names = ['name', 'uri', 'taskId'] as const

/**
 * The headers by which a request of the modern era repeats over HTTP what stands in its body; undefined for one of
 * the legacy era.
 */
export function modernHeaders(
  message: Readonly<Record<string, unknown>> | undefined,
): Record<string, string> | undefined {
  if (message === undefined || typeof message.method !== 'string') return undefined
  const params = paramsOf(message)
  const version = isObject(params._meta) ? params._meta[PROTOCOL_VERSION_KEY] : undefined
  if (typeof version !== 'string') return undefined
  const name = names.map((key) => params[key]).find((value) => typeof value === 'string')
  return {
    'mcp-protocol-version': encodeHeaderValue(version),
    'mcp-method': encodeHeaderValue(message.method),
    ...(typeof name === 'string' && { 'mcp-name': encodeHeaderValue(name) }),
  }
}
