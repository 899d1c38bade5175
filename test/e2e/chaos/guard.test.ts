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

const fault = { name: 'gone', type: 'conn.refused', rate: 1, ttl: '10m', match: { tool: 'read' } }
const chaos = { enabled: true, persist: true, faults: [fault] }

interface Locked {
  readonly title: string
  readonly gateway: Json
  readonly env: Readonly<Record<string, string>>
  readonly why: RegExp
}

const cases: readonly Locked[] = [
  {
    title: 'an environment that is production',
    gateway: { environment: 'production' },
    env: {},
    why: /^refused: gateway\.environment is "production", which counts as production$/,
  },
  {
    title: 'an environment that is not set',
    gateway: {},
    env: {},
    why: /not set, which counts as production|gateway\.environment is "production"/,
  },
  {
    title: 'NODE_ENV=production',
    gateway: { environment: 'test' },
    env: { NODE_ENV: 'production' },
    why: /^refused: the environment variable NODE_ENV is "production", which counts as production$/,
  },
]

interface Status {
  readonly state: string
  readonly refusal?: string
}

for (const { title, gateway: keys, env, why } of cases) {
  test(`${title} refuses to arm, says why, and nothing can change it while the process runs`, async () => {
    const parts: GatewayParts = {
      gateway: keys,
      servers: { flaky: { url: server.url, trusted: true } },
      chaos,
    }
    const gateway = await Gateway.start(parts, { env })
    await gateway.waitFor('up', 'flaky')
    const client = await RawClient.open(gateway.mcp('flaky'))
    const assertLocked = async (after: string) => {
      const { body } = await gateway.admin<Status>('/admin/chaos')
      assert.equal(body.state, 'disarmed', after)
      assert.match(body.refusal ?? '', why, after)
      assert.match(await client.say('read'), /^read by/, after)
      assert.equal(await gateway.metric('breakwater_chaos_armed'), 0, after)
    }

    await assertLocked('boot')
    const said = gateway.log.find(({ msg }) => msg === 'chaos: refused')
    assert.match(String(said?.why), why)

    const armed = await gateway.post<{ error?: string }>('/admin/chaos/arm', { by: 'test', why: 'to try' })
    assert.notEqual(armed.status, 200)
    assert.match(JSON.stringify(armed.body), /refused: /)
    await assertLocked('POST arm')

    const plan = JSON.stringify({ faults: [{ ...fault, name: 'other' }] })
    const headers = { 'content-type': 'application/json', 'x-environment': 'test' }
    await gateway.admin('/admin/chaos', { method: 'PUT', body: plan, headers })
    await assertLocked('PUT of a plan')

    const error = { type: 'error', statusCode: 503 }
    const injected = await gateway.post('/chaos/inject', { target: 'flaky/read', config: error })
    assert.equal(injected.status, 500)
    assert.match(JSON.stringify(injected.body), /refused: /)
    await assertLocked('POST inject')

    await gateway.reconfigure({ ...parts, chaos: { ...chaos, enabled: false } })
    await until('the reload took effect', async () => {
      return (await gateway.admin<{ enabled: boolean }>('/admin/chaos')).body.enabled === false
    })
    await gateway.reconfigure({ ...parts, gateway: { ...keys, environment: 'test' }, chaos })
    await until(
      'the reload was looked at',
      () => gateway.log.filter(({ msg }) => /reload|chaos: refused/.test(String(msg))).length > 2,
    )
    await assertLocked('a reload that says otherwise')
  })
}

test('a test environment arms at boot, and an operator disarms', async () => {
  const gateway = await Gateway.start({
    gateway: { environment: 'test' },
    servers: { flaky: { url: server.url, trusted: true } },
    policies: { defaults: { retry: false } },
    chaos,
  })
  await gateway.waitFor('up', 'flaky')
  const client = await RawClient.open(gateway.mcp('flaky'))
  assert.ok((await client.call('read')).error)
  assert.equal((await gateway.post('/admin/chaos/disarm', { by: 'test', why: 'enough' })).status, 200)
  assert.match(await client.say('read'), /^read by/)
})
