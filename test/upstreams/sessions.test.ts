import assert from 'node:assert/strict'
import { test } from 'node:test'
import { gatewayError } from '../../src/mesh/errors.ts'
import { UpstreamSessions } from '../../src/upstreams/sessions.ts'
import { TestCaller } from '../support/caller.ts'
import { ManualClock } from '../support/manual-clock.ts'
import { ScriptedUpstream } from '../support/scripted-upstream.ts'

const unavailable = gatewayError('upstream_unavailable', 'cannot connect')

function setUp(count = 1) {
  const clock = new ManualClock()
  const replicas = Array.from({ length: count }, () => new ScriptedUpstream())
  return {
    clock,
    replicas,
    first: replicas[0]!,
    upstreamSessions: new UpstreamSessions({ replicas, clock, timeoutMs: 1_000 }),
  }
}

test('a caller has one conversation, however many ask for it at once', async () => {
  const { first, upstreamSessions } = setUp()
  const caller = new TestCaller()
  const bound = await Promise.all(Array.from({ length: 10 }, () => upstreamSessions.of(caller)))
  assert.equal(new Set(bound.map(({ upstreamSession }) => upstreamSession)).size, 1)
  assert.equal((await upstreamSessions.of(caller)).upstreamSession, first.upstreamSession)
  assert.equal(first.attempts, 1)
  assert.equal(upstreamSessions.size, 1)
  assert.equal(upstreamSessions.current(caller)?.upstreamSession, first.upstreamSession)
})

test('callers have conversations of their own, spread over the replicas', async () => {
  const { replicas, upstreamSessions } = setUp(3)
  const bound = []
  for (let n = 0; n < 6; n++) bound.push(await upstreamSessions.of(new TestCaller()))
  assert.deepEqual(
    bound.map(({ replica }) => replica),
    [0, 1, 2, 0, 1, 2],
  )
  assert.deepEqual(
    replicas.map(({ attempts }) => attempts),
    [2, 2, 2],
  )
})

test('a replica that cannot be reached is passed over, and all of them are tried', async () => {
  const { replicas, upstreamSessions } = setUp(3)
  replicas[0]!.refusal = replicas[1]!.refusal = unavailable
  assert.equal((await upstreamSessions.of(new TestCaller())).replica, 2)
  replicas[2]!.refusal = gatewayError('upstream_unauthorized', 'no')
  await assert.rejects(upstreamSessions.of(new TestCaller()), unavailable)
  assert.equal(upstreamSessions.size, 1)
  replicas[1]!.refusal = undefined
  assert.equal((await upstreamSessions.of(new TestCaller())).replica, 1)
})

test('everybody who waits for a handshake learns that it failed, and the next one tries again', async () => {
  const { first, upstreamSessions } = setUp()
  const caller = new TestCaller()
  first.refusal = unavailable
  const results = await Promise.allSettled([upstreamSessions.of(caller), upstreamSessions.of(caller)])
  assert.deepEqual(
    results.map(({ status }) => status),
    ['rejected', 'rejected'],
  )
  assert.equal(first.attempts, 1)
  first.refusal = undefined
  assert.equal((await upstreamSessions.of(caller)).upstreamSession, first.upstreamSession)
})

test('a handshake that takes too long ends', async () => {
  const { clock, first, upstreamSessions } = setUp()
  first.gate = new Promise(() => {})
  const opening = assert.rejects(upstreamSessions.of(new TestCaller()), {
    reason: 'attempt_timeout',
    message: 'the handshake took longer than 1s (timeouts.discovery)',
  })
  await clock.advance(1_000)
  await opening
  assert.equal(clock.pending, 0)
})

test('each replica has the whole time for its handshake, which is not kept waiting behind', async () => {
  const { clock, replicas, upstreamSessions } = setUp(2)
  replicas[0]!.gate = new Promise(() => {})
  const opening = upstreamSessions.of(new TestCaller())
  await clock.advance(1_000)
  assert.equal((await opening).replica, 1)
  assert.equal(clock.pending, 0)
})

test('a caller that listens has its conversation listened to', async () => {
  const { first, upstreamSessions } = setUp()
  await upstreamSessions.of(new TestCaller())
  assert.equal(first.upstreamSession.listening, true)
  const deaf = {
    id: 'deaf',
    initializeParams: {},
    listening: false,
    era: 'legacy' as const,
    receive: () => undefined,
  }
  await upstreamSessions.of(deaf)
  assert.equal(first.upstreamSession.listening, false)
})

test('a server without replicas is unavailable', async () => {
  await assert.rejects(setUp(0).upstreamSessions.of(new TestCaller()), { reason: 'upstream_unavailable' })
})
