import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'
import { until } from '../../support/until.ts'
import { FlakyServer } from '../support/flaky.ts'
import { cleanUp, Gateway, type GatewayParts, type Json } from '../support/gateway.ts'
import { RawClient } from '../support/raw-client.ts'

let server: FlakyServer

before(async () => {
  server = await FlakyServer.start()
})
after(cleanUp)

const refusing = (more: Json = {}): Json => ({
  name: 'gone',
  type: 'conn.refused',
  rate: 1,
  ttl: '10m',
  allowWrites: true,
  ...more,
})

function parts(isProtected: boolean, chaos: Json): GatewayParts {
  const entry = { url: server.url, health: { every: '1s' } }
  return {
    gateway: { environment: 'test' },
    servers: { open: entry, safe: { ...entry, protected: isProtected } },
    policies: { defaults: { retry: false, breaker: false } },
    chaos: { enabled: true, persist: true, ...chaos },
  }
}

test('a protected server is hit by no fault: none may name it, and globs pass it by', async () => {
  const gateway = await Gateway.start(parts(true, { faults: [refusing()] }))
  await gateway.waitFor('up', 'safe')
  const safe = await RawClient.open(gateway.mcp('safe'))
  assert.match(await safe.say('read'), /^read by/)
  await assert.rejects(RawClient.open(gateway.mcp('open')).then((open) => open.say('read')))
  assert.equal((await gateway.server('safe'))?.protected, true)
  assert.equal((await gateway.server('open'))?.protected, false)

  const inject = (target: string, config: Json) => gateway.post<Json>('/chaos/inject', { target, config })
  const named = await inject('safe', { type: 'conn.refused', rate: 1 })
  assert.equal(named.status, 400)
  assert.match(JSON.stringify(named.body), /safe.*is protected \(mcpServers\.safe\.protected\)/)
  const led = await inject('open', { type: 'route.wrong_backend', rate: 1, server: 'safe' })
  assert.equal(led.status, 400)
  const wide = await inject('*', { type: 'proc.kill', rate: 1, allowWrites: true })
  assert.notEqual(wide.status, 200, 'none of the servers is a process')
  const all = await inject('*', { type: 'http.status', status: 503, rate: 1, allowWrites: true })
  assert.equal(all.status, 200)
  assert.match(await safe.say('read'), /^read by/)
  const plan = JSON.stringify({ faults: [refusing({ match: { server: 'safe' } })] })
  const headers = { 'content-type': 'application/json' }
  const put = await gateway.admin('/admin/chaos', { method: 'PUT', body: plan, headers })
  assert.equal(put.status, 400)
  assert.match(JSON.stringify(put.body), /is protected/)
})

test('a reload that protects a server ends what faults do to it, and one whose plan names it is refused with the line', async () => {
  const gateway = await Gateway.start(parts(false, { faults: [refusing()] }))
  await gateway.waitFor('down', 'safe')
  await gateway.reconfigure(parts(true, { faults: [refusing()] }))
  await gateway.waitFor('up', 'safe')
  assert.equal((await gateway.server('open'))?.state, 'down')
  const safe = await RawClient.open(gateway.mcp('safe'))
  assert.match(await safe.say('read'), /^read by/)

  await gateway.reconfigure(parts(true, { faults: [refusing({ match: { server: 'safe' } })] }))
  const refused = () => gateway.log.find(({ msg }) => String(msg).startsWith('config not reloaded'))
  await until('the reload is refused', () => refused() !== undefined)
  assert.match(
    JSON.stringify(refused()?.errors),
    /gateway\.yaml:\d+:\d+.*chaos\.faults\[0\]\.match\.server.*\\"safe\\" is protected/,
  )
})
