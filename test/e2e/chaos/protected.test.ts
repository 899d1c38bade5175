import assert from 'node:assert/strict'
import { after, test } from 'node:test'
import { until } from '../../support/until.ts'
import { FlakyServer } from '../support/flaky.ts'
import { armed, cleanUp, Gateway, type GatewayParts, type Json } from '../support/gateway.ts'
import { RawClient } from '../support/raw-client.ts'

after(cleanUp)

test('a reload that protects a server ends what faults do to it; from then on no plan and no request may name it', async () => {
  const { url } = await FlakyServer.start()
  const entry = { url, health: { every: '1s' } }
  const parts = (isProtected: boolean, more: Json = {}): GatewayParts => ({
    gateway: { environment: 'test' },
    servers: { open: entry, safe: { ...entry, protected: isProtected } },
    policies: { defaults: { retry: false, breaker: false } },
    chaos: armed([{ name: 'gone', type: 'conn.refused', ttl: '10m', ...more }]),
  })
  const gateway = await Gateway.start(parts(false))
  await gateway.waitFor('down', 'safe')
  await gateway.reconfigure(parts(true))
  await gateway.waitFor('up', 'safe')
  const { state, protected: isOpenProtected } = (await gateway.server('open')) ?? {}
  assert.deepEqual([state, isOpenProtected], ['down', false])
  assert.equal((await gateway.server('safe'))?.protected, true)
  const safe = await RawClient.open(gateway.mcp('safe'))
  assert.match(await safe.say('read'), /^read by/)

  const config = { type: 'conn.refused', rate: 1 }
  const { status, body } = await gateway.post('/chaos/inject', { target: 'safe', config })
  assert.equal(status, 400)
  assert.match(JSON.stringify(body), /safe.*is protected \(mcpServers\.safe\.protected\)/)

  await gateway.reconfigure(parts(true, { match: { server: 'safe' } }))
  const refused = () => gateway.log.find(({ msg }) => String(msg).startsWith('config not reloaded'))
  await until('the reload is refused', () => refused() !== undefined)
  assert.match(
    JSON.stringify(refused()?.errors),
    /gateway\.yaml:\d+:\d+.*chaos\.faults\[0\]\.match\.server.*\\"safe\\" is protected/,
  )
})
