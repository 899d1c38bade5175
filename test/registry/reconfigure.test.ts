import assert from 'node:assert/strict'
import { test } from 'node:test'
import { server as schema } from '../../src/config/schema/server-schema.ts'
import { gatewayError } from '../../src/mesh/errors.ts'
import { TestCaller, toolCall } from '../support/caller.ts'
import { ScriptedUpstream } from '../support/scripted-upstream.ts'
import { testServer } from './test-server.ts'

const tools = ['read', 'write'].map((name) => ({ name, annotations: { readOnlyHint: true } }))
const LIST_CHANGED = 'notifications/tools/list_changed'

/** A server that is up, with a caller in a conversation. */
async function setUp(settings: object = {}) {
  const upstream = new ScriptedUpstream((method) => ({ result: method === 'tools/list' ? { tools } : {} }))
  const rig = testServer({ ...settings }, [upstream])
  await rig.start()
  const caller = new TestCaller()
  await rig.server.send(toolCall('read', {}, { caller }))
  rig.changes.length = 0
  const reconfigure = (entry: object) =>
    rig.server.reconfigure(schema.parse({ url: 'http://127.0.0.1/mcp', ...entry }))
  return { ...rig, upstream, caller, reconfigure }
}

test('another entry is in force at once, and nobody is disconnected', async () => {
  const { server, upstream, caller, changes, reconfigure } = await setUp()
  const upstreamSessions = [...upstream.upstreamSessions]
  assert.equal(server.effectOf('read'), 'unknown')
  reconfigure({ deliver: 'tool_result', trusted: true })
  assert.equal(server.config.deliver, 'tool_result')
  assert.equal(server.effectOf('read'), 'read_only')
  await server.send(toolCall('read', {}, { caller }))
  assert.deepEqual(upstream.upstreamSessions, upstreamSessions)
  assert.ok(upstreamSessions.every(({ ended, closes }) => !ended.aborted && closes === 0))
  assert.deepEqual([server.state, changes, caller.of(LIST_CHANGED)], ['up', [], []])
})

test('agents are notified when their visible tools change, and only then', async () => {
  const { server, caller, changes, reconfigure } = await setUp()
  const names = () => server.entries('tools').map(({ key }) => key)
  reconfigure({ tools: { exclude: ['write'] } })
  assert.deepEqual([names(), server.allows('write')], [['read'], false])
  assert.deepEqual([changes.length, caller.of(LIST_CHANGED).length], [1, 1])
  reconfigure({ tools: { exclude: ['writ?'] } })
  reconfigure({ tools: { include: ['read'] } })
  assert.deepEqual([changes.length, caller.of(LIST_CHANGED).length], [1, 1])
  reconfigure({})
  assert.deepEqual(names(), ['read', 'write'])
  assert.deepEqual([changes, caller.of(LIST_CHANGED).length], [[['tools'], ['tools']], 2])
})

test('a server is looked after by the times of its new entry, from now on', async () => {
  const { upstream, clock, reconfigure } = await setUp({ health: { every: '1h' }, refresh: '1h' })
  const asked = () => upstream.upstreamSessions[0]?.asked.splice(0).toSorted() ?? []
  const pings = () => asked().filter((method) => method === 'ping').length
  await clock.advance(60_000)
  asked()
  reconfigure({ health: { every: '5s' }, refresh: '1h' })
  await clock.advance(10_000)
  assert.equal(pings(), 3)
  reconfigure({ health: { every: '5s' }, refresh: '30s' })
  await clock.advance(0)
  assert.ok(asked().includes('tools/list'))
  await clock.advance(30_000)
  assert.ok(asked().includes('tools/list'))
  reconfigure({ health: { every: '1h' }, refresh: '1h' })
  await clock.advance(1_800_000)
  assert.ok(pings() <= 2)
})

test('the time for discovery and handshakes is that of the new entry', async () => {
  const { server, upstream, clock, reconfigure } = await setUp({ timeouts: { discovery: '1h' } })
  upstream.gate = new Promise(() => undefined)
  reconfigure({ timeouts: { discovery: '2s' } })
  const opening = server.upstreamSessions.of(new TestCaller())
  const failed = assert.rejects(opening, { reason: 'attempt_timeout' })
  await clock.advance(2_000)
  await failed
})

test('a grace that has begun ends by the new entry', async () => {
  for (const [grace, leftMs] of [
    ['30s', 21_000],
    ['2m', 111_000],
    ['1s', 0],
  ] as const) {
    const { server, upstream, clock, reconfigure } = await setUp({ grace: '60s' })
    upstream.refusal = gatewayError('upstream_unavailable', 'cannot connect')
    for (const upstreamSession of upstream.upstreamSessions) upstreamSession.end()
    await clock.advance(1_000)
    assert.equal(server.state, 'down')
    await clock.advance(9_000)
    reconfigure({ grace })
    if (leftMs > 0) await clock.advance(leftMs - 1)
    assert.equal(server.entries('tools').length, 2)
    await clock.advance(1)
    assert.equal(server.entries('tools').length, 0)
  }
})

test('a server that has left the config tells nothing any more, and serves the calls that are under way', async () => {
  const { server, upstream, clock, caller, states, changes } = await setUp()
  server.retire()
  states.length = 0
  upstream.refusal = gatewayError('upstream_unavailable', 'cannot connect')
  await clock.advance(600_000)
  assert.deepEqual([states, changes], [[], []])
  assert.deepEqual(
    upstream.upstreamSessions.map(({ ended }) => ended.aborted),
    [true, false],
    'its own conversation is over',
  )
  assert.equal((await server.send(toolCall('read', {}, { caller }))).kind, 'answered')
  assert.equal(clock.pending, 0)
})
