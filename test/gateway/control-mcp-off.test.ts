import assert from 'node:assert/strict'
import { createHash } from 'node:crypto'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, test, type TestContext } from 'node:test'
import { RecentTraffic } from '../../src/control/mcp/traffic.ts'
import { RawClient } from '../e2e/support/raw-client.ts'
import { closeServers } from '../e2e/support/raw-server.ts'
import type { Json } from '../e2e/support/gateway.ts'
import { until } from '../support/until.ts'
import { heldServer } from './held-server.ts'
import { runGateway } from './running-gateway.ts'

after(closeServers)

async function callThrough(t: TestContext, server: string, gateway: Json) {
  const { url } = await heldServer(server)
  const { isUp, mcp } = await runGateway(t, { servers: { [server]: { url } }, gateway })
  await isUp(server)
  const client = await RawClient.open(mcp(server))
  assert.match(JSON.stringify((await client.call('name')).result), new RegExp(`"${server}"`))
}

test('a call is counted for the control MCP server only if the gateway has this server', async (t) => {
  const stateDir = await mkdtemp(join(tmpdir(), 'breakwater-'))
  t.after(() => rm(stateDir, { recursive: true }))
  const add = t.mock.method(RecentTraffic.prototype, 'add')
  const sha256 = createHash('sha256').update('a token').digest('hex')
  await callThrough(t, 'without', {})
  await callThrough(t, 'with', {
    stateDir,
    controlMcp: { listen: '127.0.0.1:0', tokens: [{ name: 'agent', sha256 }] },
  })
  await until('a call is counted', () => add.mock.callCount() > 0)
  assert.deepEqual(
    add.mock.calls.map(({ arguments: [call] }) => call.server),
    ['with'],
  )
})
