/** An MCP server (Streamable HTTP, legacy era) that is as cheap as node:http allows: the far end of every row. */
import { randomUUID } from 'node:crypto'
import { createServer } from 'node:http'
import type { IncomingMessage, ServerResponse } from 'node:http'
import { parseArgs } from 'node:util'
import { serve } from './serve.ts'
import { filling } from './workload.ts'

interface Request {
  readonly id?: string | number
  readonly method: string
  readonly params?: { readonly name?: string; readonly arguments?: { readonly text?: string } }
}

const { values } = parseArgs({
  options: { reply: { type: 'string', default: 'json' }, fill: { type: 'string', default: '0' } },
})
const streams = values.reply === 'sse'
const fill = filling(Number(values.fill))

const tools = ['echo', 'search', 'fetch', 'store', 'remove'].map((name) => ({
  name,
  description: 'Gives its text back.',
  inputSchema: { type: 'object', properties: { text: { type: 'string' } }, required: ['text'] },
}))
const toolList = JSON.stringify({ tools })
const initializeResult = JSON.stringify({
  protocolVersion: '2025-06-18',
  capabilities: { tools: {} },
  serverInfo: { name: 'bench-upstream', version: '1.0.0' },
})

const sessions = new Set<string>()

serve(
  createServer((request, response) => {
    if (request.method === 'POST') return read(request, response)
    if (request.method !== 'DELETE') return empty(response, 405)
    empty(response, sessions.delete(String(request.headers['mcp-session-id'])) ? 200 : 404)
  }),
)

function read(request: IncomingMessage, response: ServerResponse): void {
  const chunks: Buffer[] = []
  request.on('data', (chunk: Buffer) => chunks.push(chunk))
  request.on('end', () => {
    const body = chunks.length === 1 ? String(chunks[0]) : Buffer.concat(chunks).toString()
    answer(JSON.parse(body) as Request, request.headers['mcp-session-id'], response)
  })
}

function answer({ id, method, params }: Request, session: unknown, response: ServerResponse): void {
  if (method === 'initialize') {
    const opened = randomUUID()
    sessions.add(opened)
    return json(response, 200, `"result":${initializeResult}`, id, opened)
  }
  if (typeof session !== 'string') return refuse(response, 400, -32000, 'no session', id)
  if (!sessions.has(session)) return refuse(response, 404, -32001, 'unknown session', id)
  if (id === undefined) return empty(response, 202)
  if (method === 'tools/list') return json(response, 200, `"result":${toolList}`, id)
  if (method === 'ping') return json(response, 200, '"result":{}', id)
  if (method !== 'tools/call') return refuse(response, 200, -32601, `no method ${method}`, id)
  if (!tools.some((tool) => tool.name === params?.name))
    return refuse(response, 200, -32602, 'unknown tool', id)
  // The filling needs no escapes: only the caller's text is serialised.
  const text = JSON.stringify(params?.arguments?.text ?? '').slice(0, -1)
  const result = `"result":{"content":[{"type":"text","text":${text}${fill}"}]}`
  if (!streams) return json(response, 200, result, id)
  response.writeHead(200, { 'content-type': 'text/event-stream', 'cache-control': 'no-cache' })
  response.end(`event: message\ndata: ${envelope(result, id)}\n\n`)
}

function envelope(outcome: string, id: Request['id']): string {
  return `{"jsonrpc":"2.0","id":${JSON.stringify(id ?? null)},${outcome}}`
}

function json(
  response: ServerResponse,
  status: number,
  outcome: string,
  id: Request['id'],
  session?: string,
): void {
  const body = envelope(outcome, id)
  response.writeHead(status, {
    'content-type': 'application/json',
    'content-length': Buffer.byteLength(body),
    ...(session !== undefined && { 'mcp-session-id': session }),
  })
  response.end(body)
}

function refuse(
  response: ServerResponse,
  status: number,
  code: number,
  message: string,
  id: Request['id'],
): void {
  json(response, status, `"error":${JSON.stringify({ code, message })}`, id)
}

function empty(response: ServerResponse, status: number): void {
  response.writeHead(status, { 'content-length': 0 })
  response.end()
}
