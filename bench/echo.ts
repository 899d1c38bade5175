/** The far end of every row over any transport: an MCP server whose tools return their text. */
import { filling } from './workload.ts'

export interface Request {
  readonly id?: string | number
  readonly method: string
  readonly params?: { readonly name?: string; readonly arguments?: { readonly text?: string } }
}

export const MODERN_VERSION = '2026-07-28'

const tools = ['echo', 'search', 'fetch', 'store', 'remove'].map((name) => ({
  name,
  description: 'Gives its text back.',
  inputSchema: { type: 'object', properties: { text: { type: 'string' } }, required: ['text'] },
}))
const server = { capabilities: { tools: {} }, serverInfo: { name: 'bench-upstream', version: '1.0.0' } }

/** Further members of a modern result, and of a modern result that may be cached. */
const complete = { resultType: 'complete' }
const kept = { ...complete, ttlMs: 60_000, cacheScope: 'public' }

const legacyResults: Readonly<Record<string, string>> = {
  initialize: JSON.stringify({ protocolVersion: '2025-06-18', ...server }),
  'tools/list': JSON.stringify({ tools }),
  ping: '{}',
}
const modernResults: Readonly<Record<string, string>> = {
  'server/discover': JSON.stringify({ supportedVersions: [MODERN_VERSION], ...server, ...kept }),
  'tools/list': JSON.stringify({ tools, ...kept }),
}

/** Returns the outcome of a request as a member of the response. Built by hand to be as cheap as possible. */
export function echo(bytes: number): (request: Request, isModern?: boolean) => string {
  const fill = filling(bytes)
  return ({ method, params }, isModern = false) => {
    if (method !== 'tools/call') {
      const result = (isModern ? modernResults : legacyResults)[method]
      return result === undefined ? failure(-32601, `no method ${method}`) : `"result":${result}`
    }
    if (!tools.some((tool) => tool.name === params?.name)) return failure(-32602, 'unknown tool')
    // The filling needs no escapes: only the caller's text is serialised.
    const text = JSON.stringify(params?.arguments?.text ?? '').slice(0, -1)
    return `"result":{"content":[{"type":"text","text":${text}${fill}"}]${isModern ? ',"resultType":"complete"' : ''}}`
  }
}

export function failure(code: number, message: string): string {
  return `"error":${JSON.stringify({ code, message })}`
}

export function envelope(outcome: string, id: Request['id']): string {
  return `{"jsonrpc":"2.0","id":${JSON.stringify(id ?? null)},${outcome}}`
}
