/** An MCP server (Streamable HTTP, legacy era, no sessions) with very many tools, whose calls end as they ask to. */
import { createServer } from 'node:http'
import type { ServerResponse } from 'node:http'
import { toolNames, type Ending } from './scrape-tools.ts'
import { serve } from './serve.ts'

interface Request {
  readonly id?: string | number
  readonly method: string
  readonly params?: { readonly arguments?: { readonly text?: string } }
}

const text = { type: 'object', properties: { text: { type: 'string' } }, required: ['text'] }
const tools = toolNames.map((name) => ({
  name,
  description: 'Gives its text back.',
  inputSchema: text,
  outputSchema: text,
}))
const initializeResult = {
  protocolVersion: '2025-06-18',
  capabilities: { tools: {} },
  serverInfo: { name: 'scrape-upstream', version: '1.0.0' },
}

serve(
  createServer((request, response) => {
    if (request.method !== 'POST') return response.writeHead(405, { 'content-length': 0 }).end()
    const chunks: Buffer[] = []
    request.on('data', (chunk: Buffer) => chunks.push(chunk))
    request.on('end', () => answer(JSON.parse(String(Buffer.concat(chunks))) as Request, response))
    return response
  }),
)

function answer({ id, method, params }: Request, response: ServerResponse): void {
  if (id === undefined) return void response.writeHead(202, { 'content-length': 0 }).end()
  const said = method === 'tools/call' ? called(params?.arguments?.text ?? '') : asked(method)
  if (said === undefined) return void response.destroy()
  const body = JSON.stringify({ jsonrpc: '2.0', id, ...said })
  const headers = { 'content-type': 'application/json', 'content-length': Buffer.byteLength(body) }
  response.writeHead(200, headers).end(body)
}

function asked(method: string): object {
  if (method === 'initialize') return { result: initializeResult }
  if (method === 'tools/list') return { result: { tools } }
  if (method === 'ping') return { result: {} }
  return { error: { code: -32601, message: `no method ${method}` } }
}

/** Returns the reply to a tool call; undefined breaks the connection. */
function called(text: string): object | undefined {
  const content = [{ type: 'text', text }]
  switch (text.split(' ', 1)[0] as Ending) {
    case 'good':
      return { result: { content, structuredContent: { text } } }
    case 'wrong':
      return { result: { content, structuredContent: { text: 0 } } }
    case 'tool_error':
      return { result: { content, isError: true } }
    case 'caller_error':
      return { error: { code: -32602, message: text } }
    case 'rpc_error':
      return { error: { code: -32603, message: text } }
    case 'lost':
      return undefined
  }
}
