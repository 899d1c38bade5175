import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'
import { isAlive } from '../support/processes.ts'
import { until } from '../support/until.ts'
import { cleanUp, Gateway, type GatewayParts, type Json } from './support/gateway.ts'
import { RawClient } from './support/raw-client.ts'
import { HttpToolbox, stdioToolbox } from './support/toolbox.ts'

const LIST_CHANGED = 'notifications/tools/list_changed'

/** Far shorter than the calls under way across a reload. */
const DRAIN = '1s'
const CALL_MS = 3_000
const CALLS = 12

let gateway: Gateway
let remote: HttpToolbox

interface Entries {
  readonly local?: Json
  readonly remote?: Json
  readonly drain?: string
}

function parts({ local = {}, remote: entry = {}, drain = DRAIN }: Entries = {}): GatewayParts {
  const servers = { local: stdioToolbox(local), remote: { url: remote.url, ...entry } }
  return { gateway: { drain }, servers }
}

before(async () => {
  remote = await HttpToolbox.start()
  gateway = await Gateway.start(parts())
  await gateway.waitFor('up', 'local', 'remote')
})
after(cleanUp)

async function configure(entries: Entries): Promise<void> {
  const hash = async () => (await gateway.admin('/admin/config')).body.hash
  const before = await hash()
  await gateway.reconfigure(parts(entries))
  await until('the config is in force', async () => (await hash()) !== before)
}

test('calls longer than the drain finish across edits of their server, and then its old process ends', async () => {
  const clients = await Promise.all(['local', 'remote'].map((name) => RawClient.open(gateway.mcp(name))))
  const pid = Number(await clients[0]?.say('pid'))
  const calls = clients.flatMap((client) =>
    Array.from({ length: CALLS / 2 }, () => client.say('sleep', { ms: CALL_MS })),
  )
  await gateway.waitForCalls(CALLS)
  await configure({ local: { env: { CHANGED: 'yes' } }, remote: { connections: 5 } })
  await configure({ local: { env: { CHANGED: 'again' } }, remote: { connections: 6 } })
  assert.equal(await clients[0]?.say('env', { name: 'CHANGED' }), 'again')
  assert.deepEqual(await Promise.all(calls), new Array(CALLS).fill(`slept ${CALL_MS} ms`))
  await until('the old process is gone', () => !isAlive(pid))
})

test("settings outside a server's connection apply at once, without restarting a process or session", async () => {
  await configure({})
  await gateway.waitFor('up', 'local', 'remote')
  const all = await RawClient.open(gateway.mcp())
  const one = await RawClient.open(gateway.mcp('remote'))
  const [pid, session] = [await all.say('local__pid'), await all.say('remote__session')]
  const own = await one.say('session')
  const streams = await Promise.all([all.listen(), one.listen()])
  const told = () => streams.map((stream) => stream.messages(LIST_CHANGED).length)
  const underWay = [all.say('local__sleep', { ms: 1_500 }), one.say('sleep', { ms: 1_500 })]
  await gateway.waitForCalls(2)

  const tools = { exclude: ['echo'] }
  const quiet = { grace: '5s', refresh: '1m', health: { every: '1m' }, deliver: 'tool_result', trusted: true }
  await configure({ local: { tools, ...quiet }, remote: { tools, ...quiet, passthrough: true } })
  await until('both agents are told', () => told().every((times) => times > 0))
  for (const client of [all, one]) {
    const { result } = (await client.request('tools/list')) as { result: { tools: { name: string }[] } }
    assert.ok(!result.tools.some(({ name }) => name.endsWith('echo')))
  }
  assert.match(JSON.stringify((await one.call('echo', { text: 'x' })).error), /Unknown tool/)
  assert.deepEqual([await all.say('local__pid'), await all.say('remote__session')], [pid, session])
  assert.equal(await one.say('session'), own)
  assert.deepEqual(await Promise.all(underWay), ['slept 1500 ms', 'slept 1500 ms'])
  assert.equal((await gateway.server('local'))?.state, 'up')

  await configure({})
  await until('the tools are back', async () => (await one.say('echo', { text: 'back' })) === 'back')
  assert.deepEqual([await all.say('local__pid'), await one.say('session')], [pid, own])
})

test('a drain that was changed by a reload counts when the gateway is stopped, for calls of all configs', async () => {
  const held = await Gateway.start(parts({ drain: '10m' }))
  await held.waitFor('up', 'local', 'remote')
  const client = await RawClient.open(held.mcp())
  const calls = [client.call('remote__sleep', { ms: 60_000 }), client.call('local__sleep', { ms: 60_000 })]
  await held.waitForCalls(2)
  const pid = Number(await client.say('local__pid'))
  await held.reconfigure(parts({ drain: '200ms', local: { env: { CHANGED: 'yes' } } }))
  await until('a new process serves', async () => Number(await client.say('local__pid')) !== pid)
  const startedAt = performance.now()
  held.program.signal('SIGTERM')
  for (const { error } of await Promise.all(calls))
    assert.equal((error as { data: Json }).data.code, 'BW_SHUTTING_DOWN')
  assert.deepEqual(await held.program.ended, { code: 0, signal: null })
  assert.ok(performance.now() - startedAt < 10_000)
  await until('the process of the older config is gone', () => !isAlive(pid))
})
