import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'
import { isAlive } from '../support/processes.ts'
import { until } from '../support/until.ts'
import { cleanUp, Gateway, type Json } from './support/gateway.ts'
import { RawClient } from './support/raw-client.ts'
import { HttpToolbox, stdioToolbox } from './support/toolbox.ts'

let gateway: Gateway
let remote: HttpToolbox
/** Reports an unknown session with an ambiguous status. */
let vague: HttpToolbox
let all: RawClient

before(async () => {
  remote = await HttpToolbox.start()
  vague = await HttpToolbox.start({ TOOLBOX_LOST: '400' })
  gateway = await Gateway.start({
    servers: {
      remote: { url: remote.url },
      vague: { url: vague.url },
      strict: { url: remote.url, sessionRecovery: 'surface' },
      shared: stdioToolbox(),
      private: stdioToolbox({ sharing: 'per_session' }),
      another: stdioToolbox(),
    },
    // No test needs a longer wait for a server that is down.
    policies: { overrides: [{ match: { server: 'remote' }, gate: { patience: '5s' } }] },
  })
  await gateway.waitFor('up', 'remote', 'vague', 'strict', 'shared', 'private', 'another')
  all = await RawClient.open(gateway.mcp())
})
after(cleanUp)

/** Returns whether a call succeeds; an error must invite a retry, unless the call may have run. */
async function works(client: RawClient, tool: string): Promise<boolean> {
  const { error, result } = (await client.call(tool)) as { error?: { data: Json }; result?: Json }
  if (error !== undefined) assert.equal(error.data.retryable, !error.data.sent, JSON.stringify(error))
  return result !== undefined
}

test('old sessions go on with a server that was started anew and forgot them', async () => {
  const one = await RawClient.open(gateway.mcp('remote'))
  const before = await one.say('session')
  await all.say('remote__session')
  await remote.program.kill()
  assert.equal(await works(one, 'session'), false)
  await remote.revive()
  assert.notEqual(await one.say('session'), before)
  assert.equal(await all.say('remote__echo', { text: 'back' }), 'back')
  assert.ok(((await gateway.metric('breakwater_session_recoveries_total', 'server="remote"')) ?? 0) >= 2)
})

test('the client gets a 404 when the gateway may not reopen a lost session silently', async () => {
  const one = await RawClient.open(gateway.mcp('strict'))
  await one.say('session')
  await remote.program.kill()
  await remote.revive()
  const reply = await one.post({ jsonrpc: '2.0', id: 1, method: 'tools/call', params: { name: 'session' } })
  assert.equal(reply.status, 404)
  assert.equal((await one.post({ jsonrpc: '2.0', id: 2, method: 'ping' })).status, 404)
  const anew = await RawClient.open(gateway.mcp('strict'))
  assert.equal(await anew.say('echo', { text: 'anew' }), 'anew')
})

for (const server of ['shared', 'private']) {
  test(`old sessions go on after the process of a ${server} stdio server was killed`, async () => {
    const one = await RawClient.open(gateway.mcp(server))
    for (const [client, prefix] of [
      [one, ''],
      [all, `${server}__`],
    ] as const) {
      const pid = Number(await client.say(`${prefix}pid`))
      process.kill(pid, 'SIGKILL')
      await until('the process is gone', () => !isAlive(pid))
      await until('a call succeeds again', () => works(client, `${prefix}echo`))
      assert.notEqual(Number(await client.say(`${prefix}pid`)), pid)
    }
  })
}

test('a stdio server that is up again answers the first call of an old session', async () => {
  const one = await RawClient.open(gateway.mcp('another'))
  const pid = Number(await one.say('pid'))
  process.kill(pid, 'SIGKILL')
  await until('the process is gone', () => !isAlive(pid))
  const since = Date.now()
  await until('the server is up again', async () => {
    const server = await gateway.server('another')
    return server?.state === 'up' && Date.parse(String(server.since)) >= since - 1_000
  })
  assert.notEqual(Number(await one.say('pid')), pid)
})

test('a call that is under way when the process dies fails at once and says that it may have run', async () => {
  const one = await RawClient.open(gateway.mcp('another'))
  const { error } = (await one.call('crash')) as { error: { code: number; data: Json } }
  assert.equal(error.data.code, 'BW_UPSTREAM_DISCONNECTED')
  assert.deepEqual(
    { reason: error.data.reason, server: error.data.server, tool: error.data.tool, sent: error.data.sent },
    { reason: 'upstream_disconnected', server: 'another', tool: 'crash', sent: true },
  )
  assert.equal(error.data.attempts, 1)
})

test('a session that only listens hears of changes again after its server was started anew', async () => {
  const servers: readonly [string, HttpToolbox][] = [
    ['remote', remote],
    ['vague', vague],
  ]
  await Promise.all(
    servers.map(async ([name, server]) => {
      const stream = await (await RawClient.open(gateway.mcp(name))).listen()
      await server.program.kill()
      await server.revive()
      const direct = await RawClient.open(server.url)
      await until(`a change of ${name} is told`, async () => {
        await direct.say('add', { name: 'news' })
        return stream.messages('notifications/tools/list_changed').length > 0
      })
    }),
  )
})
