import assert from 'node:assert/strict'
import { after, test } from 'node:test'
import { cleanUp, Gateway, type Json } from '../support/gateway.ts'
import { ModernClient } from '../support/modern-client.ts'
import { RawClient } from '../support/raw-client.ts'
import { closeServers, RawServer, sendJson } from '../support/raw-server.ts'

const HEADER = 'x-breakwater-faults'

after(async () => {
  closeServers()
  await cleanUp()
})

async function startGateway(chaos: Json): Promise<Gateway> {
  const server = await RawServer.start(
    ({ message: { id, method } }, response) => {
      if (method !== 'tools/call') return false
      const result = { content: [{ type: 'text', text: 'fine' }] }
      sendJson(response, JSON.stringify({ jsonrpc: '2.0', id, result }))
      return true
    },
    ['broken', 'slow', 'refusing', 'well'],
  )
  const common = { rate: 1, ttl: '15m', allowWrites: true }
  const gateway = await Gateway.start({
    gateway: { environment: 'test' },
    servers: { s: { url: server.url, era: 'legacy', trusted: true } },
    policies: { defaults: { retry: false } },
    chaos: {
      enabled: true,
      persist: true,
      faults: [
        { name: 'busy', type: 'http.status', ...common, match: { tool: 'broken' } },
        {
          name: 'lag',
          type: 'conn.latency',
          ...common,
          match: { tool: 'slow' },
          distribution: { kind: 'fixed', delay: 20 },
        },
        { name: 'proxy', type: 'http.status', ...common, side: 'client', match: { tool: 'refusing' } },
      ],
      ...chaos,
    },
  })
  await gateway.waitFor('up', 's')
  return gateway
}

/** What the header says of a call of each tool, to an agent of each era. */
async function headersAt(gateway: Gateway): Promise<(string | null)[][]> {
  const legacy = await RawClient.open(gateway.mcp())
  const modern = new ModernClient(gateway.mcp('s'))
  const said: (string | null)[][] = []
  for (const tool of ['broken', 'slow', 'refusing', 'well']) {
    const params = { name: `s__${tool}`, arguments: {} }
    const toLegacy = await legacy.post({ jsonrpc: '2.0', id: tool, method: 'tools/call', params })
    const toModern = await modern.call(tool)
    said.push([toLegacy, toModern].map(({ headers }) => headers.get(HEADER)))
  }
  return said
}

test('no header says which faults hit a call, unless the config asks for it', async () => {
  const said = await headersAt(await startGateway({}))
  assert.deepEqual(said.flat(), Array(8).fill(null))
})

test('with debugHeader, a header of the reply says which faults hit the call, and what became of them', async () => {
  const gateway = await startGateway({ debugHeader: true })
  const [broken, slow, refusing, well] = await headersAt(gateway)
  assert.deepEqual(broken, Array(2).fill('busy (http.status, surfaced)'))
  for (const said of slow ?? []) assert.match(said ?? '', /^lag \(conn\.latency, delayed by [\d.]+ms\)$/)
  assert.deepEqual(refusing, Array(2).fill('proxy (http.status, surfaced)'))
  assert.deepEqual(well, [null, null])
})
