import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'
import { cleanUp, Gateway, type Json } from '../support/gateway.ts'
import { ModernClient } from '../support/modern-client.ts'
import { closeClients, connect, textOf } from '../support/sdk-client.ts'
import { HttpToolbox } from '../support/toolbox.ts'

const servers = ['says404', 'says400'] as const

const lost = (server: string, tool: string, more: Json = {}) => ({
  name: `${server}.${tool}`,
  type: 'session.lost',
  rate: 1,
  ttl: '15m',
  allowWrites: true,
  match: { server, tool },
  ...more,
})

let gateway: Gateway

before(async () => {
  const [usual, buggy] = await Promise.all([HttpToolbox.start(), HttpToolbox.start({ TOOLBOX_LOST: '400' })])
  gateway = await Gateway.start({
    gateway: { environment: 'test' },
    servers: {
      says404: { url: usual.url, era: 'legacy' },
      says400: { url: buggy.url, era: 'legacy' },
    },
    chaos: {
      enabled: true,
      persist: true,
      faults: [
        ...servers.flatMap((server) => [lost(server, 'echo', { maxInjections: 1 }), lost(server, 'pid')]),
      ],
    },
  })
  await gateway.waitFor('up', ...servers)
})
after(async () => {
  await closeClients()
  await cleanUp()
})

const fate = (fault: string, name: string) =>
  gateway.metric(`breakwater_fault_outcomes_total{fault="${fault}",fate="${name}"`)

for (const server of servers) {
  const recoveries = () => gateway.metric('breakwater_session_recoveries_total', `server="${server}"`)

  test(`session.lost: a server that ${server} gets a new initialize, and the agent its answer`, async () => {
    const client = await connect(gateway.mcp(server))
    const session = async () => textOf(await client.callTool({ name: 'session', arguments: {} }))
    const before = await session()
    const echoed = await client.callTool({ name: 'echo', arguments: { text: 'hello' } })
    assert.equal(textOf(echoed), 'hello')
    const after = await session()
    assert.notEqual(after, before)
    assert.equal(await session(), after)
    assert.equal(await recoveries(), 1)
    assert.equal(await fate(`${server}.echo`, 'masked'), 1)
  })

  test(`session.lost: with a server that ${server} every call can lose its session, and none fails`, async () => {
    const client = await connect(gateway.mcp(server))
    const pids = new Set<string>()
    for (let call = 0; call < 5; call++) {
      pids.add(textOf(await client.callTool({ name: 'pid', arguments: {} })))
    }
    assert.equal(pids.size, 1)
    assert.equal(await fate(`${server}.pid`, 'masked'), 5)
    assert.equal(await recoveries(), 6)
  })

  test(`session.lost: a modern agent in front of a server that ${server} notices nothing`, async () => {
    // It has a session from its first call on: the gateway's, of which it knows nothing.
    for (let call = 0; call < 2; call++) {
      const { messages } = await new ModernClient(gateway.mcp(server)).call('pid')
      assert.ok((messages[0]?.result as Json | undefined)?.content, JSON.stringify(messages))
    }
    assert.equal(await fate(`${server}.pid`, 'masked'), 6)
  })
}
