import { post, type RawReply } from '../../e2e/support/raw-client.ts'
import type { Json } from '../../e2e/support/gateway.ts'

const PREFIX = 'io.modelcontextprotocol/'

/** Returns the modern headers that repeat parts of the body. */
const headersOf = (method: string, { name, uri }: Json) => {
  const named = name ?? uri
  return {
    'mcp-protocol-version': '2026-07-28',
    'mcp-method': method,
    ...(typeof named === 'string' ? { 'mcp-name': named } : {}),
  }
}

/** Returns the client's description in every modern request. */
export const metaOf = (capabilities: Json = {}): Json => ({
  [`${PREFIX}protocolVersion`]: '2026-07-28',
  [`${PREFIX}clientInfo`]: { name: 'poster', version: '1' },
  [`${PREFIX}clientCapabilities`]: capabilities,
})

/** Posts a handmade modern request with id 1. */
export function postModern(
  url: string,
  method: string,
  params: Json = {},
  capabilities: Json = {},
): Promise<RawReply> {
  const { _meta = {}, ...rest } = params as { _meta?: Json }
  const whole = { ...rest, _meta: { ..._meta, ...metaOf(capabilities) } }
  const text = JSON.stringify({ jsonrpc: '2.0', id: 1, method, params: whole })
  return post(url, text, headersOf(method, params))
}
