import { appendFileSync } from 'node:fs'
import { randomUUID } from 'node:crypto'
import { once } from 'node:events'
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { createInterface } from 'node:readline'
import { text as textOf } from 'node:stream/consumers'
import {
  type Era,
  errorText,
  type Json,
  type Message,
  plainAnswer,
  resultText,
  sayText,
} from '../fixtures/counting/messages.ts'

/**
 * An MCP server that records each run of a tool before answering, in a file that survives the process: `ran TOKEN`. The
 * token is an argument of the call, and the text of the answer.
 *
 * server http legacy|modern FILE PORT     Streamable HTTP on a loopback port; 0 is any free port
 * server stdio legacy|modern FILE         standard input and output
 *
 * `read` and `write` answer after `ms` milliseconds; `report` also reports progress `steps` times.
 */
const [transport, era, file, port = '0'] = process.argv.slice(2) as [string, Era, string, string?]

const inputSchema = { type: 'object', properties: { token: { type: 'string' } } }
const tools = [
  { name: 'read', inputSchema, annotations: { readOnlyHint: true } },
  { name: 'write', inputSchema, annotations: { readOnlyHint: false } },
  { name: 'report', inputSchema, annotations: { readOnlyHint: false } },
]

interface Order {
  readonly token: string
  readonly ms: number
  readonly steps: number
  readonly progressToken: unknown
}

function orderOf({ params = {} }: Message): Order {
  const { token = '', ms = 0, steps = 0 } = params.arguments as Partial<Order>
  return { token, ms, steps, progressToken: (params._meta as Json | undefined)?.progressToken }
}

/** Runs a tool: records the run at once, then sends progress and the answer. */
function run(message: Message, send: (text: string, isLast: boolean) => void): void {
  const { token, ms, steps, progressToken } = orderOf(message)
  appendFileSync(file, `ran ${token}\n`)
  const answer = () => send(sayText(era, message.id, token), true)
  if (steps === 0 || progressToken === undefined) return void setTimeout(answer, ms)
  for (let step = 1; step <= steps; step++) {
    const params = { progressToken, progress: step, total: steps, message: token }
    const told = JSON.stringify({ jsonrpc: '2.0', method: 'notifications/progress', params })
    setTimeout(() => send(told, false), (ms * step) / (steps + 1))
  }
  setTimeout(answer, ms)
}

function answerTo(message: Message): string {
  if (message.method !== 'tools/list') return plainAnswer(era, message)
  const more = era === 'modern' ? { resultType: 'complete', ttlMs: 60_000, cacheScope: 'public' } : {}
  return resultText(message.id, { tools, ...more })
}

function serveStdio(): void {
  const input = createInterface({ input: process.stdin })
  input.on('close', () => process.exit())
  input.on('line', (line) => {
    const message = JSON.parse(line) as Message
    if (message.id === undefined || message.method === undefined) return
    const write = (text: string) => void process.stdout.write(`${text}\n`)
    if (message.method === 'tools/call') run(message, write)
    else write(answerTo(message))
  })
}

const sessions = new Set<string>()

async function answerHttp(request: IncomingMessage, response: ServerResponse): Promise<void> {
  response.on('error', () => undefined)
  const session = String(request.headers['mcp-session-id'])
  const json = { 'content-type': 'application/json' }
  const events = { 'content-type': 'text/event-stream' }
  if (request.method === 'DELETE') return void response.writeHead(sessions.delete(session) ? 204 : 404).end()
  const isUnknown = (method?: string) => era === 'legacy' && method !== 'initialize' && !sessions.has(session)
  if (request.method === 'GET') {
    if (era === 'modern') return void response.writeHead(405).end()
    if (isUnknown()) return void response.writeHead(404).end()
    return void response.writeHead(200, events).flushHeaders()
  }
  const message = JSON.parse(await textOf(request)) as Message
  if (isUnknown(message.method))
    return void response.writeHead(404, json).end(errorText(null, -32001, 'Session not found'))
  if (message.id === undefined || message.method === undefined) return void response.writeHead(202).end()
  if (message.method === 'initialize') {
    const id = randomUUID()
    sessions.add(id)
    return void response.writeHead(200, { ...json, 'mcp-session-id': id }).end(answerTo(message))
  }
  if (message.method !== 'tools/call') return void response.writeHead(200, json).end(answerTo(message))
  if (orderOf(message).steps === 0)
    return run(message, (text) => void response.writeHead(200, json).end(text))
  response.writeHead(200, events).flushHeaders()
  run(message, (text, isLast) => {
    if (response.destroyed) return
    response.write(`data: ${text}\n\n`)
    if (isLast) response.end()
  })
}

if (transport === 'stdio') serveStdio()
else {
  const server = createServer({ keepAliveTimeout: 5_000 }, (request, response) => {
    answerHttp(request, response).catch(() => response.destroy())
  })
  server.listen(Number(port), '127.0.0.1')
  await once(server, 'listening')
  process.stdout.write(`listening ${(server.address() as AddressInfo).port}\n`)
}
