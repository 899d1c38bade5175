import type { ServerResponse } from 'node:http'
import type { TestContext } from 'node:test'
import { discovered, json, rawHttp } from '../../support/modern.ts'
import type { Json } from './gateway.ts'

export const OWN_PAGE = 300

/** Cache lifetime of a list, in milliseconds. */
export const TTL_MS = 60_000

export const descriptionOf = (name: string): string => `This is ${name}.`

/** A server of one era whose list of tools can grow, and has several pages, there and behind the gateway. */
export async function pagedServer(t: TestContext, era: 'legacy' | 'modern') {
  const tools = Array.from({ length: 520 }, (_, index) => `t${String(index).padStart(3, '0')}`)
  const isModern = era === 'modern'

  function page(cursor: unknown): Json {
    const from = cursor === undefined ? 0 : Number(cursor)
    if (!Number.isInteger(from)) return { error: { code: -32602, message: 'Invalid cursor' } }
    const listed = tools.slice(from, from + OWN_PAGE).map((name) => ({
      name,
      description: descriptionOf(name),
      inputSchema: { type: 'object', properties: { [name]: {} }, required: [name] },
    }))
    const next = from + OWN_PAGE < tools.length ? { nextCursor: String(from + OWN_PAGE) } : {}
    const kept = isModern ? { resultType: 'complete', ttlMs: TTL_MS, cacheScope: 'public' } : {}
    return { result: { tools: listed, ...next, ...kept } }
  }

  function answer(method: string | undefined, params: Json): Json {
    switch (method) {
      case 'tools/list':
        return page(params.cursor)
      case 'server/discover':
        return { result: discovered }
      case 'initialize':
        return {
          result: {
            protocolVersion: '2025-11-25',
            capabilities: { tools: { listChanged: true } },
            serverInfo: { name: 'paged', version: '1' },
          },
        }
      default:
        return { result: isModern ? { resultType: 'complete' } : {} }
    }
  }

  const { url } = await rawHttp(t, ({ method: verb, body }, response: ServerResponse) => {
    const { id, method, params = {} } = body
    if (verb !== 'POST') return void response.writeHead(405).end()
    if (id === undefined) return void response.writeHead(202).end()
    if (method === 'subscriptions/listen' || (isModern && method === 'initialize'))
      return json(response, { jsonrpc: '2.0', id, error: { code: -32601, message: 'no' } })
    json(response, { jsonrpc: '2.0', id, ...answer(method, params) })
  })
  return { url, tools }
}
