import assert from 'node:assert/strict'
import { test } from 'node:test'
import { Cancellation } from '../../src/mesh/cancel.ts'
import { gatewayError } from '../../src/mesh/errors.ts'
import { TestCaller, toolCall } from '../support/caller.ts'
import { ScriptedUpstream } from '../support/scripted-upstream.ts'
import { allLists } from './discovered.ts'
import { testServer } from './test-server.ts'

const unavailable = gatewayError('upstream_unavailable', 'cannot connect')

test('a server is starting until its first round has ended, well or not', async () => {
  for (const refusal of [undefined, unavailable]) {
    const { server, upstream, clock, states } = testServer()
    upstream.refusal = refusal
    let settled = false
    void server.settled.then(() => (settled = true))
    server.start()
    assert.equal(server.state, 'starting')
    await clock.advance(0)
    assert.equal(server.state, refusal === undefined ? 'up' : 'down')
    assert.equal(settled, true)
    assert.equal(server.error, refusal)
    assert.deepEqual(states, [server.state])
  }
})

test('a change of state is told once, with the time when it began', async () => {
  const { server, upstream, clock, states, start } = testServer()
  await start()
  const since = server.since
  await clock.advance(60_000)
  assert.equal(server.since, since)
  upstream.refusal = unavailable
  upstream.link.end()
  await clock.advance(30_000)
  assert.deepEqual(states, ['up', 'down'])
  assert.equal(server.since, since + 60_000)
  upstream.refusal = undefined
  await clock.advance(30_000)
  assert.deepEqual(states, ['up', 'down', 'up'])
  assert.equal(server.error, undefined)
})

test('the tools of a server that went down stay listed for the time of grace, and come back', async () => {
  const { server, upstream, clock, changes, start } = testServer({ grace: '60s' })
  await start()
  assert.deepEqual(changes, [['tools']])
  await clock.advance(1_000)
  upstream.refusal = unavailable
  upstream.link.end()
  await clock.advance(59_999)
  assert.equal(server.entries('tools').length, 1)
  assert.equal(server.facts('a') !== undefined, true)
  await clock.advance(1)
  assert.equal(server.entries('tools').length, 0)
  assert.equal(server.facts('a') !== undefined, false)
  assert.deepEqual(changes, [['tools'], ['tools']])
  upstream.refusal = undefined
  await clock.advance(30_000)
  assert.equal(server.entries('tools').length, 1)
  assert.equal(changes.length, 3)
})

test('a server that comes back within the grace has changed nothing, and its next grace is a whole one', async () => {
  const { server, upstream, clock, changes, start } = testServer({ grace: '60s' })
  await start()
  for (let round = 0; round < 3; round++) {
    await clock.advance(1_000)
    upstream.refusal = unavailable
    upstream.link.end()
    await clock.advance(20_000)
    assert.equal(server.state, 'down')
    upstream.refusal = undefined
    await clock.advance(15_000)
    assert.equal(server.state, 'up')
  }
  assert.deepEqual(changes, [['tools']])
})

test('agents see the tools that the config lets them see', async () => {
  const tools = ['read_a', 'read_b', 'write', 'read_secret'].map((name) => ({ name }))
  const upstream = new ScriptedUpstream((method) => ({ result: method === 'tools/list' ? { tools } : {} }))
  const { server, start } = testServer({ tools: { include: ['read_*', 'x'], exclude: ['*secret'] } }, [
    upstream,
  ])
  await start()
  assert.deepEqual(
    server.entries('tools').map(({ key }) => key),
    ['read_a', 'read_b'],
  )
  assert.deepEqual(
    ['read_a', 'x', 'write', 'read_secret', ''].map((tool) => server.allows(tool)),
    [true, true, false, false, false],
  )
})

test("a call takes its caller's conversation, and begins one if need be", async () => {
  const { server, upstream } = testServer()
  const caller = new TestCaller()
  const call = toolCall('a', {}, { caller })
  const outcome = await server.send(call)
  assert.equal(outcome.kind, 'answered')
  assert.equal(upstream.attempts, 1)
  assert.deepEqual([call.record.attempts, call.record.replica], [1, 0])
  await server.send(toolCall('a', {}, { caller }))
  assert.equal(upstream.attempts, 1)
})

test('a call that cannot reach the server fails, was not sent, and makes discovery look', async () => {
  const { server, upstream, clock, start, states } = testServer()
  await start()
  upstream.refusal = unavailable
  await clock.advance(1_000)
  upstream.link.end(unavailable)
  upstream.link.asked.length = 0
  const outcome = await server.send(toolCall('a'))
  assert.deepEqual(outcome, { kind: 'failed', error: unavailable })
  await clock.advance(0)
  assert.deepEqual(states, ['up', 'down'])
})

test('a caller that gives up does not wait for a handshake', async () => {
  const { server, upstream } = testServer()
  upstream.gate = new Promise(() => {})
  const signal = new Cancellation()
  const sent = server.send({ ...toolCall('a'), signal })
  const reason = gatewayError('cancelled', 'not needed')
  signal.abort(reason)
  assert.deepEqual(await sent, { kind: 'failed', error: reason })
})

test('closing ends conversations and replicas once, and nothing goes on behind it', async () => {
  const { server, upstream, clock, states, start } = testServer()
  await start()
  await server.send(toolCall('a'))
  await Promise.all([server.close(), server.close()])
  await clock.advance(1_000_000)
  assert.equal(upstream.closed, 1)
  assert.ok(upstream.links.every((link) => link.ended.aborted))
  assert.deepEqual(states, ['up'])
  assert.equal(clock.pending, 0)
})

test('a server that is down is closed without its grace', async () => {
  const { server, upstream, clock, start } = testServer()
  upstream.refusal = unavailable
  await start()
  await server.close()
  assert.equal(clock.pending, 0)
})

test('discovery has a conversation of its own', async () => {
  const { server, upstream, start } = testServer()
  await start()
  await server.send(toolCall('a'))
  assert.equal(upstream.links.length, 2)
  assert.deepEqual(upstream.links[0]?.asked.toSorted(), allLists)
  assert.deepEqual(upstream.links[1]?.asked, ['tools/call'])
  assert.equal(server.links.size, 2)
})
