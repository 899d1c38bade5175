import { once } from 'node:events'
import type { AddressInfo } from 'node:net'
import { Server } from '@modelcontextprotocol/sdk/server/index.js'
import {
  CallToolRequestSchema,
  ListResourcesRequestSchema,
  ListToolsRequestSchema,
  SubscribeRequestSchema,
  UnsubscribeRequestSchema,
} from '@modelcontextprotocol/sdk/types.js'
import { streamableHttp } from '../../fixtures/contract/serve.ts'
import { pageOf } from '../../fixtures/modern-extras/pages.ts'
import { tools } from './legacy-tools.ts'

const PAGE_SIZE = 4

export const uris = Array.from({ length: 10 }, (_, index) => `test://item/${index}`)

/** State shared by all conversations of a server. */
export interface Facts {
  /** Servers of open conversations, with the resources each client subscribed to. */
  readonly conversations: Map<Server, Set<string>>
  /** Whether the tool `sometimes` is listed. */
  sometimes: boolean
  /** Number of cancelled calls of `wait`. */
  cancelled: number
}

export const newFacts = (): Facts => ({ conversations: new Map(), sometimes: false, cancelled: 0 })

export interface HttpRequest {
  readonly method: string
  /** Undefined before the session begins. */
  readonly session: string | undefined
}

export interface LegacyExtras {
  readonly url: string
  readonly facts: Facts
  readonly requests: readonly HttpRequest[]
  close(): Promise<void>
}

/**
 * Starts a legacy server over Streamable HTTP with the features of the modern fixture. Lists come in pages, resources
 * change, calls can be cancelled, and questions come in several rounds.
 */
export async function startLegacyExtras(): Promise<LegacyExtras> {
  const facts = newFacts()
  const requests: HttpRequest[] = []
  const http = streamableHttp(() => createLegacyExtras(facts))
  http.prependListener('request', ({ method = '', headers }) => {
    requests.push({ method, session: headers['mcp-session-id'] as string | undefined })
  })
  http.listen(0, '127.0.0.1')
  await once(http, 'listening')
  return {
    url: `http://127.0.0.1:${(http.address() as AddressInfo).port}/mcp`,
    facts,
    requests,
    async close() {
      http.close()
      http.closeAllConnections()
      await once(http, 'close')
    },
  }
}

export function createLegacyExtras(facts: Facts): Server {
  const server = new Server(
    { name: 'legacy-extras', version: '1.0.0' },
    { capabilities: { tools: { listChanged: true }, resources: { subscribe: true } } },
  )
  const subscriptions = new Set<string>()
  facts.conversations.set(server, subscriptions)
  server.onclose = () => facts.conversations.delete(server)
  server.setRequestHandler(ListToolsRequestSchema, ({ params }) => {
    const listed = Object.entries(tools).filter(([name]) => name !== 'sometimes' || facts.sometimes)
    const { items, next } = pageOf(listed, PAGE_SIZE, params?.cursor)
    return { tools: items.map(([name, { definition }]) => ({ name, ...definition })), ...next }
  })
  server.setRequestHandler(CallToolRequestSchema, async ({ params }, extra) => {
    const value = await tools[params.name]?.run(params.arguments ?? {}, extra, facts)
    const structured =
      tools[params.name]?.definition.outputSchema === undefined ? {} : { structuredContent: value }
    return { content: [{ type: 'text', text: JSON.stringify(value) }], ...structured }
  })
  server.setRequestHandler(ListResourcesRequestSchema, ({ params }) => {
    const { items, next } = pageOf(uris, PAGE_SIZE, params?.cursor)
    return { resources: items.map((uri) => ({ uri, name: uri })), ...next }
  })
  server.setRequestHandler(SubscribeRequestSchema, ({ params }) => {
    subscriptions.add(params.uri)
    return {}
  })
  server.setRequestHandler(UnsubscribeRequestSchema, ({ params }) => {
    subscriptions.delete(params.uri)
    return {}
  })
  return server
}
