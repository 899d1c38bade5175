import assert from 'node:assert/strict'
import { test } from 'node:test'
import { gatewayError } from '../../src/mesh/errors.ts'
import { Links } from '../../src/registry/links.ts'
import { TestCaller } from '../support/caller.ts'
import { ManualClock } from '../support/manual-clock.ts'
import { ScriptedUpstream } from '../support/scripted-upstream.ts'

const unavailable = gatewayError('upstream_unavailable', 'cannot connect')

function setUp(count = 3) {
  const clock = new ManualClock()
  const replicas = Array.from({ length: count }, () => new ScriptedUpstream())
  const links = new Links({ replicas, clock, timeoutMs: 1_000 })
  const attempts = () => replicas.map((replica) => replica.attempts)
  return { clock, replicas, links, attempts, caller: new TestCaller() }
}

test('who names a replica gets a conversation with that one, and with each at most one', async () => {
  const { links, replicas, attempts, caller } = setUp()
  for (const replica of [2, 0, 2, 0]) {
    const bound = await links.of(caller, replica)
    assert.equal(bound.replica, replica)
    assert.equal(bound.link, replicas[replica]?.link)
    assert.equal(links.current(caller, replica), bound)
  }
  assert.deepEqual(attempts(), [1, 0, 1])
  assert.equal(links.current(caller, 1), undefined)
  assert.deepEqual(links.all(caller), [replicas[2]!.link, replicas[0]!.link])
  assert.equal(links.size, 1)
})

test('who names none gets the conversation that was begun first', async () => {
  const { links, attempts, caller } = setUp()
  const first = await links.of(caller, 1)
  await links.of(caller, 0)
  assert.equal(await links.of(caller), first)
  assert.equal(links.current(caller), first)
  assert.deepEqual(attempts(), [1, 1, 0])
})

test('however many ask at once, for a replica or for any, no replica is greeted twice', async () => {
  for (const asked of [
    [undefined, 0, 0, undefined, 1],
    [0, undefined, 1, 0],
  ]) {
    const { links, attempts, caller } = setUp()
    const bound = await Promise.all(asked.map((replica) => links.of(caller, replica)))
    assert.deepEqual(attempts(), [1, 1, 0])
    assert.equal(new Set(bound).size, 2)
    assert.equal(links.all(caller).length, 2)
  }
})

test('a replica that is named and cannot be reached is not exchanged for another one', async () => {
  const { links, replicas, attempts, caller } = setUp()
  replicas[1]!.refusal = unavailable
  await assert.rejects(links.of(caller, 1), unavailable)
  assert.deepEqual(attempts(), [0, 1, 0])
  assert.equal(links.size, 0)
  replicas[1]!.refusal = undefined
  assert.equal((await links.of(caller, 1)).replica, 1)
})

test('a named replica that hangs has its time, and does not hold up another one', async () => {
  const { clock, links, replicas, caller } = setUp()
  replicas[0]!.gate = new Promise(() => {})
  const hanging = assert.rejects(links.of(caller, 0), { reason: 'attempt_timeout' })
  assert.equal((await links.of(caller, 1)).replica, 1)
  await clock.advance(1_000)
  await hanging
  assert.equal(clock.pending, 0)
})

test('a conversation that ends leaves those with other replicas alone', async () => {
  const { links, replicas, caller } = setUp()
  await links.of(caller, 0)
  const other = await links.of(caller, 1)
  replicas[0]!.link.end()
  assert.equal(links.current(caller, 0), undefined)
  assert.equal(links.current(caller), other)
  assert.equal(links.size, 1)
})

test('dropping a caller ends its conversations with all replicas, and the handshakes', async () => {
  const { clock, links, replicas, caller } = setUp()
  const stays = await links.of(new TestCaller(), 0)
  await links.of(caller, 0)
  await links.of(caller, 1)
  replicas[2]!.gate = new Promise(() => {})
  const opening = assert.rejects(links.of(caller, 2), { reason: 'cancelled' })
  await links.drop(caller)
  await opening
  assert.deepEqual(links.all(caller), [])
  assert.deepEqual([replicas[0]!.link.closes, replicas[1]!.link.closes], [1, 1])
  assert.equal(stays.link.ended.aborted, false)
  assert.equal(links.size, 1)
  assert.equal(clock.pending, 0)
})

test('one conversation can be ended alone, once, and not the one that took its place', async () => {
  const { links, replicas, caller } = setUp()
  const first = await links.of(caller, 0)
  const other = await links.of(caller, 1)
  links.retire(caller, first)
  links.retire(caller, first)
  assert.equal(replicas[0]!.links[0]?.closes, 1)
  assert.deepEqual(links.all(caller), [other.link])
  const next = await links.of(caller, 0)
  links.retire(caller, first)
  assert.equal(links.current(caller, 0), next)
  assert.equal(next.link.ended.aborted, false)
})

test('nothing is dropped for a caller without a conversation', async () => {
  const { links, caller } = setUp()
  const { link } = await links.of(new TestCaller(), 0)
  links.leave(caller, 0)
  await links.drop(caller)
  assert.equal(link.ended.aborted, false)
})

test('a conversation that is retired takes no new calls, and ends with the last that is under way', async () => {
  const { links, caller } = setUp()
  const bound = await links.of(caller, 0)
  bound.calls = 2
  links.retire(caller, bound)
  assert.equal(links.current(caller), undefined)
  links.left(bound)
  assert.equal(bound.link.ended.aborted, false)
  links.left(bound)
  assert.equal(bound.link.ended.aborted, true)
})

test('a caller counts where it is at home, however many conversations it has, and elsewhere once that is over', async () => {
  const { links, caller } = setUp()
  const other = new TestCaller()
  await links.of(caller, 1)
  await links.of(caller, 0)
  await links.of(other, 2)
  await links.of(other, 0)
  assert.deepEqual(links.homes(caller), [0, 1, 1])
  links.leave(caller, 1)
  assert.deepEqual(links.homes(caller), [1, 0, 1])
  await links.drop(other)
  assert.deepEqual(links.homes(caller), [1, 0, 0])
  links.leave(caller, 0)
  assert.deepEqual(links.homes(caller), [0, 0, 0])
})
