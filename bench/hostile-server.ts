/** An MCP server (Streamable HTTP, legacy era) that misbehaves: each of its tools in another way. */
import { createServer, type ServerResponse } from 'node:http'
import { randomUUID } from 'node:crypto'
import { setPriority } from 'node:os'
import { misdeeds } from './hostile-tools.ts'
import { serve } from './serve.ts'

const MIB = 1024 ** 2

interface Request {
  readonly id?: string | number
  readonly method: string
  readonly params?: { readonly name?: string }
}

const ways: Readonly<Record<(typeof misdeeds)[number], (response: ServerResponse, id: string) => void>> = {
  // Every byte is its own chunk.
  'json-crumbs'(response, id) {
    begin(response, 'application/json')
    for (const byte of reply(id, 'x'.repeat(256 * 1024))) response.write(byte)
    response.end()
  },
  'sse-crumbs'(response, id) {
    begin(response, 'text/event-stream')
    for (const byte of `data: ${reply(id, 'x'.repeat(256 * 1024))}\n\n`) response.write(byte)
    response.end()
  },
  'large-reply'(response, id) {
    begin(response, 'application/json')
    response.end(reply(id, 'x'.repeat(15 * MIB)))
  },
  'deep-reply'(response, id) {
    begin(response, 'application/json')
    response.end(`{"jsonrpc":"2.0","id":${id},"result":{"a":${'['.repeat(1e6)}${']'.repeat(1e6)}}}`)
  },
  'many-keys'(response, id) {
    begin(response, 'application/json')
    const keys = Array.from({ length: 100_000 }, (_, n) => `"k${n}":1`).join()
    response.end(`{"jsonrpc":"2.0","id":${id},"result":{"content":[],"structuredContent":{${keys}}}}`)
  },
  'ping-flood'(response, id) {
    flood(response, id, (n) => `{"jsonrpc":"2.0","id":"p${n}","method":"ping"}`)
  },
  'change-flood'(response, id) {
    flood(response, id, () => '{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}')
  },
  'no-messages'(response, id) {
    begin(response, 'text/event-stream')
    for (let n = 0; n < 20_000; n++) response.write(`: ${n}\n\n`)
    response.end(`data: ${reply(id, 'after all')}\n\n`)
  },
}

// Runs with the lowest priority, like on another machine, so that the attack takes no CPU from measured processes.
setPriority(19)

serve(
  createServer((request, response) => {
    const chunks: Buffer[] = []
    request.on('data', (chunk: Buffer) => chunks.push(chunk))
    request.on('end', () => {
      if (request.method !== 'POST') return void response.writeHead(405).end()
      answer(JSON.parse(Buffer.concat(chunks).toString()) as Request, response)
    })
  }),
)

function answer({ id, method, params }: Request, response: ServerResponse): void {
  if (id === undefined) return void response.writeHead(202).end()
  const own = JSON.stringify(id)
  const way = ways[params?.name as (typeof misdeeds)[number]]
  if (method === 'tools/call') return way(response, own)
  const tools = misdeeds.map((name) => ({ name, inputSchema: { type: 'object' } }))
  const initializeResult = {
    protocolVersion: '2025-06-18',
    capabilities: { tools: { listChanged: true } },
    serverInfo: { name: 'hostile', version: '1.0.0' },
  }
  const result = method === 'initialize' ? initializeResult : method === 'tools/list' ? { tools } : {}
  response.writeHead(200, {
    'content-type': 'application/json',
    ...(method === 'initialize' && { 'mcp-session-id': randomUUID() }),
  })
  response.end(`{"jsonrpc":"2.0","id":${own},"result":${JSON.stringify(result)}}`)
}

function begin(response: ServerResponse, type: string): void {
  response.socket?.setNoDelay(true)
  response.writeHead(200, { 'content-type': type })
}

function flood(response: ServerResponse, id: string, message: (n: number) => string): void {
  begin(response, 'text/event-stream')
  for (let n = 0; n < 5_000; n++) response.write(`data: ${message(n)}\n\n`)
  response.end(`data: ${reply(id, 'after all')}\n\n`)
}

const reply = (id: string, text: string) =>
  `{"jsonrpc":"2.0","id":${id},"result":{"content":[{"type":"text","text":"${text}"}]}}`
