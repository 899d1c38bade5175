import assert from 'node:assert/strict'
import { after, test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { until } from '../../support/until.ts'
import { Agent } from '../support/agent.ts'
import { bystand } from '../support/bystander.ts'
import { CountingServer } from '../support/counting.ts'
import { armed, cleanUp, Gateway } from '../support/gateway.ts'

after(cleanUp)

const script = fileURLToPath(new URL('../../fixtures/pouring-server.js', import.meta.url))

const FLOOD_MS = 1_000

for (const lines of ['junk', 'notifications'] as const) {
  test(`stdout.flood (${lines}): the server answers all the same, a bystander is served, and the log stays short`, async (t) => {
    const kind = await CountingServer.start('legacy', 1)
    const gateway = await Gateway.start({
      gateway: { environment: 'test' },
      servers: {
        kind: { urls: kind.urls, trusted: true },
        pouring: { command: process.execPath, args: [script], era: 'legacy', trusted: true },
      },
      policies: { defaults: { retry: false } },
      chaos: armed([
        {
          ...{ name: 'flood', type: 'stdout.flood', match: { server: 'pouring', method: 'tools/call' } },
          ...{ lines, perSecond: 10_000, size: 1_024, for: FLOOD_MS },
        },
      ]),
    })
    await gateway.waitFor('up', 'kind', 'pouring')
    const agent = await Agent.open('legacy', gateway.mcp('kind'))
    const flooded = await Agent.open('legacy', gateway.mcp('pouring'))
    let calls = 0
    const call = async () => {
      assert.equal((await agent.call('read', { token: `read-${calls++}` })).kind, 'result')
    }
    await call()
    const since = performance.now()
    const floodIt = async () => {
      while (performance.now() - since < FLOOD_MS)
        assert.equal((await flooded.call('pour', { line: 'x', count: 1 })).kind, 'result')
    }
    t.diagnostic(await bystand(gateway, call, floodIt))
    const seconds = (performance.now() - since) / 1_000
    const noise = () => gateway.log.filter(({ excerpt }) => String(excerpt).startsWith('xx'))
    if (lines === 'junk') {
      await until('the log reports the dropped lines', () => noise().length > 0)
      assert.ok(noise().length <= 5 * (Math.ceil(seconds) + 1), `${noise().length} lines of noise`)
      assert.ok(noise().every(({ excerpt }) => String(excerpt).length <= 200))
    } else assert.deepEqual(noise(), [])
    const fates = await gateway.sums('breakwater_fault_outcomes_total', 'fate', 'fault="flood"')
    assert.deepEqual(Object.keys(fates), ['masked'])
    assert.equal(await gateway.metric('breakwater_chaos_engine_errors_total'), 0)
  })
}
