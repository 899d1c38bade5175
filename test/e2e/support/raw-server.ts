import { createServer, type IncomingHttpHeaders, type Server, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { text } from 'node:stream/consumers'
import { orBrokenOff } from '../../support/broken-off.ts'
import type { Json } from './gateway.ts'

export interface Seen {
  readonly verb: string
  readonly url: string
  readonly headers: IncomingHttpHeaders
  readonly text: string
  /** Empty for a request without a message. */
  readonly message: Json
}

/** Answers a request. Returns false for the usual answer. */
export type Script = (seen: Seen, response: ServerResponse) => boolean | undefined | void

const servers = new Set<Server>()

/** An HTTP server that records requests byte by byte, and answers by a test's script. */
export class RawServer {
  readonly seen: Seen[] = []
  readonly url: string
  readonly #server: Server

  private constructor(url: string, server: Server) {
    this.url = url
    this.#server = server
  }

  /** Ends its connections, and accepts no more. */
  stop(): Promise<void> {
    const stopped = new Promise<void>((resolve) => this.#server.close(() => resolve()))
    this.#server.closeAllConnections()
    return stopped
  }

  /** `tools`: names in its list. */
  static async start(script: Script, tools: readonly string[] = []): Promise<RawServer> {
    // A stalled server would close idle connections just as requests arrive on them.
    const server = createServer({ keepAliveTimeout: 60_000 }, (request, response) => {
      const taking = text(request).then((body) => {
        const message = body.trimStart().startsWith('{') ? (JSON.parse(body) as Json) : {}
        const { method: verb = '', url = '', headers } = request
        const seen = { verb, url, headers, text: body, message }
        raw.seen.push(seen)
        if (script(seen, response) === false) usual(seen, response, tools)
      })
      orBrokenOff(taking)
    })
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
    servers.add(server)
    const raw = new RawServer(`http://127.0.0.1:${(server.address() as AddressInfo).port}/mcp`, server)
    return raw
  }

  of(method: string): Seen[] {
    return this.seen.filter(({ message }) => message.method === method)
  }
}

export function closeServers(): void {
  for (const server of servers) {
    server.closeAllConnections()
    server.close()
  }
  servers.clear()
}

export function sendJson(response: ServerResponse, body: string): void {
  response.writeHead(200, { 'content-type': 'application/json' }).end(body)
}

export function sendResult(response: ServerResponse, id: unknown, result: unknown): true {
  sendJson(response, JSON.stringify({ jsonrpc: '2.0', id, result }))
  return true
}

/** Answers like a plain server without sessions and without a standing stream. */
function usual({ verb, message }: Seen, response: ServerResponse, tools: readonly string[]): void {
  if (verb !== 'POST') return void response.writeHead(405).end()
  const { id, method, params } = message as { id?: unknown; method?: string; params?: Json }
  if (id === undefined || method === undefined) return void response.writeHead(202).end()
  const results: Readonly<Record<string, unknown>> = {
    initialize: {
      protocolVersion: params?.protocolVersion,
      capabilities: { tools: {} },
      serverInfo: { name: 'raw', version: '1.0.0' },
    },
    'tools/list': { tools: tools.map((name) => ({ name, inputSchema: { type: 'object' } })) },
    ping: {},
  }
  const result = results[method]
  const error = { code: -32601, message: `Method not found: ${method}` }
  sendJson(
    response,
    JSON.stringify({ jsonrpc: '2.0', id, ...(result === undefined ? { error } : { result }) }),
  )
}
