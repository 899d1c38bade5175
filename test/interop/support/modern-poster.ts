import { post, type RawReply } from '../../e2e/support/raw-client.ts'
import type { Json } from '../../e2e/support/gateway.ts'

const PREFIX = 'io.modelcontextprotocol/'

/** Headers of the modern era that repeat what a request says. */
const headersOf = (method: string, { name, uri }: Json) => {
  const named = name ?? uri
  return {
    'mcp-protocol-version': '2026-07-28',
    'mcp-method': method,
    ...(typeof named === 'string' ? { 'mcp-name': named } : {}),
  }
}

/** What every modern request says of its client. */
export const metaOf = (capabilities: Json = {}): Json => ({
  [`${PREFIX}protocolVersion`]: '2026-07-28',
  [`${PREFIX}clientInfo`]: { name: 'poster', version: '1' },
  [`${PREFIX}clientCapabilities`]: capabilities,
})

/** Posts one request of the modern era by hand; its id is 1. */
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
