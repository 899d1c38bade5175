import assert from 'node:assert/strict'
import { test } from 'node:test'
import { gatewayError } from '../../src/mesh/errors.ts'
import { Links } from '../../src/registry/links.ts'
import { TestCaller } from '../support/caller.ts'
import { ManualClock } from '../support/manual-clock.ts'
import { ScriptedUpstream } from '../support/scripted-upstream.ts'

const unavailable = gatewayError('upstream_unavailable', 'cannot connect')

function setUp(count = 1) {
  const clock = new ManualClock()
  const replicas = Array.from({ length: count }, () => new ScriptedUpstream())
  return { clock, replicas, first: replicas[0]!, links: new Links({ replicas, clock, timeoutMs: 1_000 }) }
}

test('a caller has one conversation, however many ask for it at once', async () => {
  const { first, links } = setUp()
  const caller = new TestCaller()
  const bound = await Promise.all(Array.from({ length: 10 }, () => links.of(caller)))
  assert.equal(new Set(bound.map(({ link }) => link)).size, 1)
  assert.equal((await links.of(caller)).link, first.link)
  assert.equal(first.attempts, 1)
  assert.equal(links.size, 1)
  assert.equal(links.current(caller)?.link, first.link)
})

test('callers have conversations of their own, spread over the replicas', async () => {
  const { replicas, links } = setUp(3)
  const bound = []
  for (let n = 0; n < 6; n++) bound.push(await links.of(new TestCaller()))
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
  const { replicas, links } = setUp(3)
  replicas[0]!.refusal = replicas[1]!.refusal = unavailable
  assert.equal((await links.of(new TestCaller())).replica, 2)
  replicas[2]!.refusal = gatewayError('upstream_unauthorized', 'no')
  await assert.rejects(links.of(new TestCaller()), unavailable)
  assert.equal(links.size, 1)
  replicas[1]!.refusal = undefined
  assert.equal((await links.of(new TestCaller())).replica, 1)
})

test('everybody who waits for a handshake learns that it failed, and the next one tries again', async () => {
  const { first, links } = setUp()
  const caller = new TestCaller()
  first.refusal = unavailable
  const results = await Promise.allSettled([links.of(caller), links.of(caller)])
  assert.deepEqual(
    results.map(({ status }) => status),
    ['rejected', 'rejected'],
  )
  assert.equal(first.attempts, 1)
  first.refusal = undefined
  assert.equal((await links.of(caller)).link, first.link)
})

test('a handshake that takes too long ends', async () => {
  const { clock, first, links } = setUp()
  first.gate = new Promise(() => {})
  const opening = assert.rejects(links.of(new TestCaller()), {
    reason: 'attempt_timeout',
    message: 'the handshake took longer than 1000 ms',
  })
  await clock.advance(1_000)
  await opening
  assert.equal(clock.pending, 0)
})

test('each replica has the whole time for its handshake, which is not kept waiting behind', async () => {
  const { clock, replicas, links } = setUp(2)
  replicas[0]!.gate = new Promise(() => {})
  const opening = links.of(new TestCaller())
  await clock.advance(1_000)
  assert.equal((await opening).replica, 1)
  assert.equal(clock.pending, 0)
})

test('a caller that listens has its conversation listened to', async () => {
  const { first, links } = setUp()
  await links.of(new TestCaller())
  assert.equal(first.link.listening, true)
  const deaf = {
    id: 'deaf',
    hello: {},
    listening: false,
    takesInputRequired: false,
    receive: () => undefined,
  }
  await links.of(deaf)
  assert.equal(first.link.listening, false)
})

test('a server without replicas is unavailable', async () => {
  await assert.rejects(setUp(0).links.of(new TestCaller()), { reason: 'upstream_unavailable' })
})
