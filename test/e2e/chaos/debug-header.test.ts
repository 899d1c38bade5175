import assert from 'node:assert/strict'
import { after, test } from 'node:test'
import { armed, cleanUp, Gateway } from '../support/gateway.ts'
import { ModernClient } from '../support/modern-client.ts'
import { RawClient } from '../support/raw-client.ts'
import { closeServers, RawServer, sendResult } from '../support/raw-server.ts'

after(closeServers)
after(cleanUp)

/** The debug header of each tool's call, and the fault that hits it. */
const said = {
  broken: [/^broken \(http\.status, surfaced\)$/, { type: 'http.status' }],
  slow: [
    /^slow \(conn\.latency, delayed by [\d.]+ms\)$/,
    { type: 'conn.latency', distribution: { kind: 'fixed', delay: 20 } },
  ],
  refusing: [/^refusing \(http\.status, surfaced\)$/, { type: 'http.status', side: 'client' }],
  well: [/^null$/, undefined],
} as const

test('with debugHeader, a header of the reply says which faults hit the call, and what became of them', async () => {
  const server = await RawServer.start(
    ({ message: { id, method } }, response) =>
      method === 'tools/call' && sendResult(response, id, { content: [{ type: 'text', text: 'fine' }] }),
    Object.keys(said),
  )
  const faults = Object.entries(said).flatMap(([name, [, fault]]) =>
    fault === undefined ? [] : [{ name, match: { tool: name }, ...fault }],
  )
  const gateway = await Gateway.start({
    gateway: { environment: 'test' },
    servers: { s: { url: server.url, era: 'legacy', trusted: true } },
    policies: { defaults: { retry: false } },
    chaos: armed(faults, { debugHeader: true }),
  })
  await gateway.waitFor('up', 's')
  const legacy = await RawClient.open(gateway.mcp())
  const modern = new ModernClient(gateway.mcp('s'))
  for (const [tool, [words]] of Object.entries(said)) {
    const params = { name: `s__${tool}`, arguments: {} }
    const toLegacy = await legacy.post({ jsonrpc: '2.0', id: tool, method: 'tools/call', params })
    for (const { headers } of [toLegacy, await modern.call(tool)])
      assert.match(String(headers.get('x-breakwater-faults')), words)
  }
})
