import assert from 'node:assert/strict'
import { writeFile } from 'node:fs/promises'
import { after, before, test } from 'node:test'
import { until } from '../support/until.ts'
import { cleanUp, configText, Gateway, type GatewayParts, type Json } from './support/gateway.ts'
import { RawClient } from './support/raw-client.ts'
import { HttpToolbox, stdioToolbox } from './support/toolbox.ts'

let gateway: Gateway
let remote: HttpToolbox
let client: RawClient

/** A config with the two permanent servers, and a timeout that tells configs apart. */
function parts(timeout: number): GatewayParts {
  return {
    servers: { local: stdioToolbox(), remote: { url: remote.url } },
    policies: { defaults: { attemptTimeout: { timeout } } },
  }
}

before(async () => {
  remote = await HttpToolbox.start()
  gateway = await Gateway.start(parts(60_000))
  await gateway.waitFor('up', 'local', 'remote')
  client = await RawClient.open(gateway.mcp())
})
after(cleanUp)

async function timeoutInForce(): Promise<unknown> {
  const { body } = await gateway.admin<{ config: { policies: { defaults: { attemptTimeout: Json } } } }>(
    '/admin/config',
  )
  return body.config.policies.defaults.attemptTimeout.timeout
}

const ways: readonly [string, (text: GatewayParts) => Promise<unknown>][] = [
  ['a file that is replaced by renaming', (next) => gateway.reconfigure(next)],
  ['a file that is written in place', (next) => writeFile(gateway.file, configText(next))],
  [
    'SIGHUP',
    async (next) => {
      await writeFile(gateway.file, configText(next))
      gateway.program.signal('SIGHUP')
    },
  ],
  [
    'POST /admin/reload',
    async (next) => {
      await writeFile(gateway.file, configText(next))
      const { status, body } = await gateway.post('/admin/reload')
      assert.equal(status, 200)
      assert.equal(body.ok, true)
    },
  ],
]

for (const [index, [way, change]] of ways.entries()) {
  test(`${way} changes policies and leaves processes, sessions and calls alone`, async () => {
    const pid = await client.say('local__pid')
    const session = await client.say('remote__session')
    const calls = [client.say('local__sleep', { ms: 1_500 }), client.say('remote__sleep', { ms: 1_500 })]
    await gateway.waitForCalls(2)
    const timeout = 50_000 + index
    await change(parts(timeout))
    await until('the new config is in force', async () => (await timeoutInForce()) === timeout)
    assert.equal(await client.say('local__pid'), pid)
    assert.equal(await client.say('remote__session'), session)
    assert.deepEqual(await Promise.all(calls), ['slept 1500 ms', 'slept 1500 ms'])
  })
}

test('a bad config changes nothing, and is reported with its lines until repaired', async () => {
  const pid = await client.say('local__pid')
  const good = await timeoutInForce()
  await writeFile(gateway.file, 'mcpServers:\n  local:\n    comand: node\npolicies:\n  defaults: 7\n')
  await until(
    'the reload fails',
    async () => (await gateway.metric('breakwater_config_reload_success')) === 0,
  )
  const { status, body } = await gateway.post<{ ok: boolean; errors: string[] }>('/admin/reload')
  assert.equal(status, 422)
  assert.equal(body.ok, false)
  assert.match(body.errors.join('\n'), /gateway\.yaml:3:\d+ .*comand/)
  assert.match(body.errors.join('\n'), /gateway\.yaml:5:\d+ /)
  const logged = gateway.log.find(({ msg }) => String(msg).startsWith('config not reloaded'))
  assert.match(JSON.stringify(logged?.errors), /gateway\.yaml:3/)
  assert.equal(await timeoutInForce(), good)
  assert.equal(await client.say('local__pid'), pid)
  assert.equal(await client.say('remote__echo', { text: 'still here' }), 'still here')

  await gateway.reconfigure(parts(40_000))
  await until('the mended config is in force', async () => (await timeoutInForce()) === 40_000)
  assert.equal(await gateway.metric('breakwater_config_reload_success'), 1)
  assert.equal(await client.say('local__pid'), pid)
})

test('keys that are fixed at boot keep their value, and the report names them', async () => {
  await writeFile(gateway.file, configText({ ...parts(40_000), gateway: { separator: '--', drain: '1s' } }))
  const { status, body } = await gateway.post('/admin/reload')
  assert.equal(status, 200)
  assert.deepEqual(body.needsRestart, ['gateway.separator'])
  assert.equal(await client.say('local__echo', { text: 'same name' }), 'same name')
})
