import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { Json } from '../e2e/support/gateway.ts'
import { killAll } from '../e2e/support/program.ts'
import { closeServers, RawServer } from '../e2e/support/raw-server.ts'
import { runGateway } from './running-gateway.ts'

const staging = { environment: 'staging' }

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
