import assert from 'node:assert/strict'
import { test } from 'node:test'
import { Cancellation } from '../../src/mesh/cancel.ts'
import { gatewayError, type Reason } from '../../src/mesh/errors.ts'
import { TestCaller, toolCall } from '../support/caller.ts'
import { ScriptedUpstream } from '../support/scripted-upstream.ts'
import { testServer } from './test-server.ts'

const unavailable = gatewayError('upstream_unavailable', 'cannot connect')

/** A server whose calls fail with a reason while the reason is set. */
function failing(count: number) {
  const state: { reason: Reason | undefined } = { reason: undefined }
  const replicas = Array.from({ length: count }, () => {
    return new ScriptedUpstream(() =>
      state.reason === undefined ? { result: {} } : gatewayError(state.reason, 'x'),
    )
  })
  return { state, replicas, ...testServer({}, replicas) }
}

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
  upstream.upstreamSession.end(unavailable)
  upstream.upstreamSession.asked.length = 0
  const outcome = await server.send(toolCall('a'))
  assert.deepEqual(outcome, { kind: 'failed', error: unavailable })
  await clock.advance(0)
  assert.deepEqual(states, ['up', 'down'])
})

test('an answered call at a server that is down triggers an early look, at any pause, and not ever more often', async () => {
  const { server, upstream, clock, start, states } = testServer()
  const caller = new TestCaller()
  await server.send(toolCall('a', {}, { caller }))
  upstream.refusal = gatewayError('upstream_rate_limited', 'HTTP 429', { retryAfterMs: 240_000 })
  await start()
  assert.deepEqual(states, ['down'])
  const attempts = upstream.attempts
  for (let i = 0; i < 5; i++) await server.send(toolCall('a', {}, { caller }))
  await clock.advance(999)
  assert.equal(upstream.attempts, attempts)
  await clock.advance(1)
  assert.equal(upstream.attempts, attempts + 1)
  for (let i = 0; i < 5; i++) await server.send(toolCall('a', {}, { caller }))
  await clock.advance(1_999)
  assert.equal(upstream.attempts, attempts + 1)
  upstream.refusal = undefined
  await clock.advance(1)
  assert.deepEqual(states, ['down', 'up'])
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

test('a caller stays with its replica as long as that answers', async () => {
  const { server, replicas } = failing(3)
  const callers = [new TestCaller(), new TestCaller(), new TestCaller()]
  for (let round = 0; round < 3; round++) {
    for (const [index, caller] of callers.entries()) {
      const call = toolCall('a', {}, { caller })
      await server.send(call)
      assert.equal(call.record.replica, index)
    }
  }
  assert.deepEqual(
    replicas.map(({ attempts }) => attempts),
    [1, 1, 1],
  )
})

test('a caller whose replica cannot be reached goes to another one with its next call', async () => {
  const { server, state } = failing(2)
  const caller = new TestCaller()
  const send = async () => {
    const call = toolCall('a', {}, { caller })
    await server.send(call)
    return call.record.replica
  }
  assert.equal(await send(), 0)
  state.reason = 'upstream_disconnected'
  await send()
  state.reason = undefined
  assert.equal(await send(), 0, 'one broken connection moves no caller')
  state.reason = 'upstream_unavailable'
  await send()
  state.reason = undefined
  assert.equal(await send(), 1)
})

test('with one replica a caller keeps its conversation, which may know what nobody else does', async () => {
  const { server, state, upstream } = failing(1)
  const caller = new TestCaller()
  for (const reason of ['upstream_disconnected', 'upstream_status', 'attempt_timeout', undefined] as const) {
    state.reason = reason
    await server.send(toolCall('a', {}, { caller }))
  }
  assert.equal(upstream.attempts, 1)
})

test('a session that is lost for good is given up', async () => {
  const { server, state, upstream } = failing(1)
  const caller = new TestCaller()
  await server.send(toolCall('a', {}, { caller }))
  state.reason = 'session_lost'
  await server.send(toolCall('a', {}, { caller }))
  state.reason = undefined
  await server.send(toolCall('a', {}, { caller }))
  assert.equal(upstream.attempts, 2)
  assert.deepEqual(
    upstream.upstreamSessions.map((upstreamSession) => upstreamSession.closes),
    [1, 0],
  )
})

test('a failure that comes late does not end the conversation that was begun since', async () => {
  const fails: (() => void)[] = []
  const script = () =>
    new Promise<ReturnType<typeof gatewayError>>((resolve) => {
      fails.push(() => resolve(gatewayError('upstream_unavailable', 'x')))
    })
  const replicas = [new ScriptedUpstream(script), new ScriptedUpstream()]
  const { server, clock } = testServer({}, replicas)
  const caller = new TestCaller()
  const calls = [1, 2].map(() => server.send(toolCall('a', {}, { caller, replica: 0 })))
  for (let turn = 0; fails.length < 2 && turn < 10; turn++) await clock.advance(0)
  // Both calls are under way on one conversation; the second continues there.
  fails[0]?.()
  await calls[0]
  assert.equal(replicas[0]!.upstreamSessions[0]?.closes, 0)
  const next = await server.send(toolCall('a', {}, { caller, replica: 1 }))
  assert.equal(next.kind, 'answered')
  fails[1]?.()
  await calls[1]
  await clock.advance(0)
  assert.deepEqual([replicas[0]!.upstreamSessions[0]?.closes, replicas[1]!.upstreamSession.closes], [1, 0])
  assert.equal(server.upstreamSessions.current(caller)?.upstreamSession, replicas[1]!.upstreamSession)
})

test('an agent waits for a handshake no longer than its own deadline', async () => {
  const { server, upstream, clock } = testServer()
  upstream.gate = new Promise(() => {})
  const caller = new TestCaller()
  const refused = assert.rejects(server.converse(caller, 500), { reason: 'deadline_exceeded' })
  await clock.advance(500)
  await refused
  await server.upstreamSessions.drop(caller)
  upstream.gate = undefined
  assert.equal((await server.converse(caller, 1e300)).replica, 0)
})
