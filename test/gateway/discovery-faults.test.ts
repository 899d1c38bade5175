import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { Json } from '../e2e/support/gateway.ts'
import { killAll } from '../e2e/support/program.ts'
import { pagedServer } from '../e2e/support/paged-server.ts'
import { closeServers, RawServer } from '../e2e/support/raw-server.ts'
import { RawClient } from '../e2e/support/raw-client.ts'
import { until } from '../support/until.ts'
import { runGateway } from './running-gateway.ts'

const staging = { environment: 'staging' }

const incapable = { type: 'initialize.no_capabilities', rate: 1, ttl: '10m' }

test('the end of a fault that had changed handshakes brings the tools of a server back, in either era', async (t) => {
  t.after(killAll)
  t.after(closeServers)
  const legacy = await RawServer.start(() => false, ['work'])
  const modern = await pagedServer(t, 'modern')
  const names = ['legacy', 'modern']
  const { admin, live, isUp, mcp } = await runGateway(t, {
    servers: {
      legacy: { url: legacy.url, era: 'legacy' },
      modern: { url: modern.url, era: 'modern' },
    },
    gateway: staging,
    chaos: {
      enabled: true,
      persist: true,
      faults: names.map((name) => ({ name, ...incapable, match: { server: name } })),
    },
  })
  const tools = (name: string) => live.current.servers.get(name)?.entries('tools').length
  await isUp(...names)
  assert.deepEqual(names.map(tools), [0, 0])
  const agent = await RawClient.open(mcp('legacy'))
  await admin('/admin/chaos/disarm', { by: 'test', why: 'to see the tools again' })
  await until('the tools are back', () => tools('legacy') === 1 && tools('modern') === modern.tools.length)
  assert.equal(legacy.of('initialize').length, 3)
  // A new handshake would be the agent's next handshake, too.
  assert.ok((await agent.request('tools/list')).result)
  assert.equal(legacy.of('initialize').length, 3)
})

test('a server that ignores cursors is asked twice for a list with a wrong one, and the fault is named', async (t) => {
  t.after(killAll)
  t.after(closeServers)
  const server = await RawServer.start(() => false, ['work'])
  const lost = { name: 'lost', type: 'registry.invalid_cursor', rate: 1, ttl: '10m', match: { server: 'a' } }
  const { live, isUp } = await runGateway(t, {
    servers: { a: { url: server.url, era: 'legacy' } },
    gateway: staging,
    chaos: { enabled: true, persist: true, faults: [lost] },
  })
  await isUp('a')
  const { lists, cut } = live.current.servers.get('a')?.catalog ?? {}
  assert.equal(lists?.tools.length, 1)
  assert.equal(cut?.tools, 'the pages go in circles (injected: lost)')
  const asked = server.of('tools/list').map(({ message }) => (message.params as Json).cursor)
  const wrong = asked.filter((cursor) => cursor !== undefined)
  assert.equal(new Set(wrong).size, 1)
  assert.ok(wrong.length <= asked.length / 2, `${wrong.length} of ${asked.length}`)
})
