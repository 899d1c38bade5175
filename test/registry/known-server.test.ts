import assert from 'node:assert/strict'
import { test } from 'node:test'
import { gatewayError } from '../../src/mesh/errors.ts'
import { ScriptedUpstream } from '../support/scripted-upstream.ts'
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

test('a change of state is reported once, with the time of its start', async () => {
  const { server, upstream, clock, states, start } = testServer()
  await start()
  const since = server.since
  await clock.advance(60_000)
  assert.equal(server.since, since)
  upstream.refusal = unavailable
  upstream.upstreamSession.end()
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
  upstream.upstreamSession.end()
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

test('the tools of a server that limits our rate stay listed for as long as that is all that is wrong', async () => {
  const { server, upstream, clock, changes, start } = testServer({ grace: '60s' })
  await start()
  await clock.advance(1_000)
  const limited = gatewayError('upstream_rate_limited', 'HTTP 429', { sent: true, retryAfterMs: 3_600_000 })
  upstream.refusal = limited
  upstream.upstreamSession.end()
  await clock.advance(299_999)
  assert.deepEqual([server.state, server.error, server.entries('tools').length], ['down', limited, 1])
  // When the server is really unreachable, the grace starts in full.
  upstream.refusal = unavailable
  await clock.advance(1)
  assert.equal(server.error, unavailable)
  await clock.advance(59_000)
  assert.equal(server.entries('tools').length, 1)
  await clock.advance(1_000)
  assert.equal(server.entries('tools').length, 0)
  assert.equal(changes.length, 2)
})

test('a server that limits our rate after an outage is there: its grace is over', async () => {
  const { server, upstream, clock, changes, start } = testServer({ grace: '60s' })
  await start()
  await clock.advance(1_000)
  upstream.refusal = unavailable
  upstream.upstreamSession.end()
  await clock.advance(20_000)
  upstream.refusal = gatewayError('upstream_rate_limited', 'HTTP 429', { sent: true })
  await clock.advance(300_000)
  assert.equal(server.entries('tools').length, 1)
  assert.equal(changes.length, 1)
})

test('a server that comes back within the grace has changed nothing, and its next grace is a whole one', async () => {
  const { server, upstream, clock, changes, start } = testServer({ grace: '60s' })
  await start()
  for (let round = 0; round < 3; round++) {
    await clock.advance(1_000)
    upstream.refusal = unavailable
    upstream.upstreamSession.end()
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
