/** An MCP server (Streamable HTTP), as cheap as node:http allows: the far end of every row. */
import { randomUUID } from 'node:crypto'
import { createServer } from 'node:http'
import type { IncomingMessage, ServerResponse } from 'node:http'
import { parseArgs } from 'node:util'
import { echo, envelope, failure, MODERN_VERSION, type Request } from './echo.ts'
import { serve } from './serve.ts'

const { values } = parseArgs({
  options: {
    reply: { type: 'string', default: 'json' },
    fill: { type: 'string', default: '0' },
    /** True: the server also speaks the modern era; without this flag only the era with sessions. */
    modern: { type: 'boolean', default: false },
  },
})
const streams = values.reply === 'sse'
const outcomeOf = echo(Number(values.fill))

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
    answer(JSON.parse(body) as Request, request.headers, response)
  })
}

function answer(request: Request, headers: IncomingMessage['headers'], response: ServerResponse): void {
  const { id, method } = request
  const isModern = values.modern && headers['mcp-protocol-version'] === MODERN_VERSION
  if (!isModern) {
    if (method === 'initialize') {
      const opened = randomUUID()
      sessions.add(opened)
      return json(response, 200, outcomeOf(request), id, opened)
    }
    const session = headers['mcp-session-id']
    if (typeof session !== 'string') return json(response, 400, failure(-32000, 'no session'), id)
    if (!sessions.has(session)) return json(response, 404, failure(-32001, 'unknown session'), id)
  }
  if (id === undefined) return empty(response, 202)
  const outcome = outcomeOf(request, isModern)
  if (!streams || method !== 'tools/call') return json(response, 200, outcome, id)
  response.writeHead(200, { 'content-type': 'text/event-stream', 'cache-control': 'no-cache' })
  response.end(`event: message\ndata: ${envelope(outcome, id)}\n\n`)
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

function empty(response: ServerResponse, status: number): void {
  response.writeHead(status, { 'content-length': 0 })
  response.end()
}
