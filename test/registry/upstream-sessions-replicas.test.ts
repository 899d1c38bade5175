import assert from 'node:assert/strict'
import { test } from 'node:test'
import { gatewayError } from '../../src/mesh/errors.ts'
import { UpstreamSessions } from '../../src/upstreams/sessions.ts'
import { TestCaller } from '../support/caller.ts'
import { ManualClock } from '../support/manual-clock.ts'
import { ScriptedUpstream } from '../support/scripted-upstream.ts'

const unavailable = gatewayError('upstream_unavailable', 'cannot connect')

function setUp(count = 3) {
  const clock = new ManualClock()
  const replicas = Array.from({ length: count }, () => new ScriptedUpstream())
  const upstreamSessions = new UpstreamSessions({ replicas, clock, timeoutMs: 1_000 })
  const attempts = () => replicas.map((replica) => replica.attempts)
  return { clock, replicas, upstreamSessions, attempts, caller: new TestCaller() }
}

test('a call that names a replica gets a conversation with the replica, at most one for each', async () => {
  const { upstreamSessions, replicas, attempts, caller } = setUp()
  for (const replica of [2, 0, 2, 0]) {
    const bound = await upstreamSessions.of(caller, replica)
    assert.equal(bound.replica, replica)
    assert.equal(bound.upstreamSession, replicas[replica]?.upstreamSession)
    assert.equal(upstreamSessions.current(caller, replica), bound)
  }
  assert.deepEqual(attempts(), [1, 0, 1])
  assert.equal(upstreamSessions.current(caller, 1), undefined)
  assert.deepEqual(upstreamSessions.all(caller), [replicas[2]!.upstreamSession, replicas[0]!.upstreamSession])
  assert.equal(upstreamSessions.size, 1)
})

test('a call without a replica gets the oldest conversation', async () => {
  const { upstreamSessions, attempts, caller } = setUp()
  const first = await upstreamSessions.of(caller, 1)
  await upstreamSessions.of(caller, 0)
  assert.equal(await upstreamSessions.of(caller), first)
  assert.equal(upstreamSessions.current(caller), first)
  assert.deepEqual(attempts(), [1, 1, 0])
})

test('however many ask at once, for a replica or for any, no replica is initialized twice', async () => {
  for (const asked of [
    [undefined, 0, 0, undefined, 1],
    [0, undefined, 1, 0],
  ]) {
    const { upstreamSessions, attempts, caller } = setUp()
    const bound = await Promise.all(asked.map((replica) => upstreamSessions.of(caller, replica)))
    assert.deepEqual(attempts(), [1, 1, 0])
    assert.equal(new Set(bound).size, 2)
    assert.equal(upstreamSessions.all(caller).length, 2)
  }
})

test('a replica that is named and cannot be reached is not exchanged for another one', async () => {
  const { upstreamSessions, replicas, attempts, caller } = setUp()
  replicas[1]!.refusal = unavailable
  await assert.rejects(upstreamSessions.of(caller, 1), unavailable)
  assert.deepEqual(attempts(), [0, 1, 0])
  assert.equal(upstreamSessions.size, 0)
  replicas[1]!.refusal = undefined
  assert.equal((await upstreamSessions.of(caller, 1)).replica, 1)
})

test('a named replica that hangs has its time, and does not hold up another one', async () => {
  const { clock, upstreamSessions, replicas, caller } = setUp()
  replicas[0]!.gate = new Promise(() => {})
  const hanging = assert.rejects(upstreamSessions.of(caller, 0), { reason: 'attempt_timeout' })
  assert.equal((await upstreamSessions.of(caller, 1)).replica, 1)
  await clock.advance(1_000)
  await hanging
  assert.equal(clock.pending, 0)
})

test('a conversation that ends leaves those with other replicas alone', async () => {
  const { upstreamSessions, replicas, caller } = setUp()
  await upstreamSessions.of(caller, 0)
  const other = await upstreamSessions.of(caller, 1)
  replicas[0]!.upstreamSession.end()
  assert.equal(upstreamSessions.current(caller, 0), undefined)
  assert.equal(upstreamSessions.current(caller), other)
  assert.equal(upstreamSessions.size, 1)
})

test('dropping a caller ends its conversations with all replicas, and the handshakes', async () => {
  const { clock, upstreamSessions, replicas, caller } = setUp()
  const stays = await upstreamSessions.of(new TestCaller(), 0)
  await upstreamSessions.of(caller, 0)
  await upstreamSessions.of(caller, 1)
  replicas[2]!.gate = new Promise(() => {})
  const opening = assert.rejects(upstreamSessions.of(caller, 2), { reason: 'cancelled' })
  await upstreamSessions.drop(caller)
  await opening
  assert.deepEqual(upstreamSessions.all(caller), [])
  assert.deepEqual([replicas[0]!.upstreamSession.closes, replicas[1]!.upstreamSession.closes], [1, 1])
  assert.equal(stays.upstreamSession.ended.aborted, false)
  assert.equal(upstreamSessions.size, 1)
  assert.equal(clock.pending, 0)
})

test('a conversation can be ended alone, once, and without its successor', async () => {
  const { upstreamSessions, replicas, caller } = setUp()
  const first = await upstreamSessions.of(caller, 0)
  const other = await upstreamSessions.of(caller, 1)
  upstreamSessions.retire(caller, first)
  upstreamSessions.retire(caller, first)
  assert.equal(replicas[0]!.upstreamSessions[0]?.closes, 1)
  assert.deepEqual(upstreamSessions.all(caller), [other.upstreamSession])
  const next = await upstreamSessions.of(caller, 0)
  upstreamSessions.retire(caller, first)
  assert.equal(upstreamSessions.current(caller, 0), next)
  assert.equal(next.upstreamSession.ended.aborted, false)
})

test('nothing is dropped for a caller without a conversation', async () => {
  const { upstreamSessions, caller } = setUp()
  const { upstreamSession } = await upstreamSessions.of(new TestCaller(), 0)
  upstreamSessions.leave(caller, 0)
  await upstreamSessions.drop(caller)
  assert.equal(upstreamSession.ended.aborted, false)
})

test('a conversation that is retired takes no new calls, and ends with the last that is under way', async () => {
  const { upstreamSessions, caller } = setUp()
  const bound = await upstreamSessions.of(caller, 0)
  bound.calls = 2
  upstreamSessions.retire(caller, bound)
  assert.equal(upstreamSessions.current(caller), undefined)
  upstreamSessions.left(bound)
  assert.equal(bound.upstreamSession.ended.aborted, false)
  upstreamSessions.left(bound)
  assert.equal(bound.upstreamSession.ended.aborted, true)
})

test('a caller counts at its home, with any number of conversations, and elsewhere afterwards', async () => {
  const { upstreamSessions, caller } = setUp()
  const other = new TestCaller()
  await upstreamSessions.of(caller, 1)
  await upstreamSessions.of(caller, 0)
  await upstreamSessions.of(other, 2)
  await upstreamSessions.of(other, 0)
  assert.deepEqual(upstreamSessions.homes(caller), [0, 1, 1])
  upstreamSessions.leave(caller, 1)
  assert.deepEqual(upstreamSessions.homes(caller), [1, 0, 1])
  await upstreamSessions.drop(other)
  assert.deepEqual(upstreamSessions.homes(caller), [1, 0, 0])
  upstreamSessions.leave(caller, 0)
  assert.deepEqual(upstreamSessions.homes(caller), [0, 0, 0])
})
