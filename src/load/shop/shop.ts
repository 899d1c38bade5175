import { randomUUID } from 'node:crypto'
import { once } from 'node:events'
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { fileURLToPath } from 'node:url'
import { StreamableHTTPServerTransport } from '@modelcontextprotocol/sdk/server/streamableHttp.js'
import { mcpServer, orders } from './tools.ts'

/** Path of the program of the stdio server `docs`. It is in the same folder as this file, also in the bundle. */
const docsServer = fileURLToPath(new URL('./docs-server.js', import.meta.url))

/** The servers of the shop, over stdio and over HTTP, with the orders placed at the HTTP server. */
export interface Shop {
  /** The block `mcpServers` of a gateway in front of both. */
  readonly mcpServers: Readonly<Record<string, object>>
  /** How often each order was placed, by its `ref`. */
  readonly placed: ReadonlyMap<string, number>
  close(): Promise<void>
}

/** Maximum number of open sessions: `compare` opens two sessions for each of up to 512 parallel tasks. */
const MAX_SESSIONS = 2_048

/**
 * Starts the HTTP server on loopback, with Streamable HTTP and sessions. The gateway starts the stdio server itself.
 */
export async function startShop(): Promise<Shop> {
  const placed = new Map<string, number>()
  const sessions = new Map<string, StreamableHTTPServerTransport>()

  async function answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const id = request.headers['mcp-session-id']
    const known = typeof id === 'string' ? sessions.get(id) : undefined
    if (known !== undefined) return known.handleRequest(request, response)
    if (id !== undefined) return void response.writeHead(404).end()
    if (sessions.size >= MAX_SESSIONS) return void response.writeHead(503).end()
    const transport: StreamableHTTPServerTransport = new StreamableHTTPServerTransport({
      sessionIdGenerator: randomUUID,
      onsessioninitialized: (session) => void sessions.set(session, transport),
      onsessionclosed: (session) => void sessions.delete(session),
    })
    const server = mcpServer('orders', orders, (_, { ref }) => {
      if (typeof ref === 'string') placed.set(ref, (placed.get(ref) ?? 0) + 1)
    })
    await server.connect(transport)
    return transport.handleRequest(request, response)
  }

  const server = createServer((request, response) => {
    answer(request, response).catch((error: unknown) => response.destroy(error as Error))
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/mcp`
  return {
    mcpServers: {
      docs: { command: process.execPath, args: [docsServer], era: 'legacy', trusted: true },
      orders: { url, era: 'legacy', trusted: true },
    },
    placed,
    async close() {
      const closed = once(server, 'close')
      server.close()
      server.closeAllConnections()
      await closed
    },
  }
}
