import type { TestContext } from 'node:test'
import { discovered, json, rawHttp } from '../../support/modern.ts'

const outputSchema = {
  type: 'object',
  properties: { city: { type: 'string' }, items: { type: 'array', items: { type: 'integer' } } },
  required: ['city', 'items'],
}

const tools = [
  {
    name: 'look_up',
    annotations: { readOnlyHint: true },
    inputSchema: {
      type: 'object',
      properties: { city: { type: 'string' }, days: { type: 'integer' } },
      required: ['city'],
    },
    outputSchema,
  },
  { name: 'book', inputSchema: { type: 'object' } },
]

/** A modern server with a read-only tool, whose results are long and have a schema, and a tool that writes. */
export async function catalogueServer(t: TestContext) {
  const { url, came } = await rawHttp(t, ({ body }, response) => {
    const { id, method, params } = body
    if (id === undefined) return void response.writeHead(202).end()
    const { city } = (params?.arguments ?? {}) as { city?: string }
    const found = { city, items: [1, 2, 3], about: 'x'.repeat(4_096) }
    switch (method) {
      case 'server/discover':
        return json(response, { jsonrpc: '2.0', id, result: discovered })
      case 'tools/list':
        return json(response, { jsonrpc: '2.0', id, result: { resultType: 'complete', tools } })
      case 'tools/call': {
        const content = [{ type: 'text', text: JSON.stringify(found) }]
        const result = { resultType: 'complete', content, structuredContent: found }
        return json(response, { jsonrpc: '2.0', id, result })
      }
      case 'initialize':
      case 'subscriptions/listen':
        return json(response, { jsonrpc: '2.0', id, error: { code: -32601, message: 'no' } })
      default:
        return json(response, { jsonrpc: '2.0', id, result: { resultType: 'complete' } })
    }
  })
  return { url, calls: () => came.filter(({ body }) => body.method === 'tools/call') }
}
