import assert from 'node:assert/strict'
import { test } from 'node:test'
import { setImmediate } from 'node:timers/promises'
import { gatewayError } from '../../src/mesh/errors.ts'
import { UpstreamSessions } from '../../src/upstreams/sessions.ts'
import type { Upstream } from '../../src/upstreams/upstream.ts'
import { TestCaller } from '../support/caller.ts'
import { ManualClock } from '../support/manual-clock.ts'
import { ScriptedUpstream } from '../support/scripted-upstream.ts'

function setUp() {
  const clock = new ManualClock()
  const first = new ScriptedUpstream()
  return {
    clock,
    first,
    upstreamSessions: new UpstreamSessions({ replicas: [first], clock, timeoutMs: 1_000 }),
  }
}

/** A promise that the test resolves. */
function gate(): { promise: Promise<void>; open: () => void } {
  let open = () => {}
  const promise = new Promise<void>((resolve) => (open = resolve))
  return { promise, open }
}

test('a conversation that ends is forgotten, and the next call begins another', async () => {
  const { first, upstreamSessions } = setUp()
  const caller = new TestCaller()
  const { upstreamSession } = await upstreamSessions.of(caller)
  first.upstreamSession.end()
  assert.equal(upstreamSessions.current(caller), undefined)
  assert.notEqual((await upstreamSessions.of(caller)).upstreamSession, upstreamSession)
})

test('the end of an old conversation does not touch the new one', async () => {
  const { upstreamSessions, first } = setUp()
  const caller = new TestCaller()
  await upstreamSessions.of(caller)
  const old = first.upstreamSession
  await upstreamSessions.drop(caller)
  const { upstreamSession } = await upstreamSessions.of(caller)
  old.end()
  assert.equal(upstreamSessions.current(caller)?.upstreamSession, upstreamSession)
})

test('a conversation that is dropped is closed, once', async () => {
  const { first, upstreamSessions } = setUp()
  const caller = new TestCaller()
  await upstreamSessions.of(caller)
  await Promise.all([upstreamSessions.drop(caller), upstreamSessions.drop(caller)])
  await upstreamSessions.drop(caller)
  assert.equal(first.upstreamSession.closes, 1)
  assert.equal(upstreamSessions.size, 0)
})

test('a conversation dropped while opening is closed as soon as open', async () => {
  const { clock, first, upstreamSessions } = setUp()
  const caller = new TestCaller()
  const hold = gate()
  first.gate = hold.promise
  const opening = upstreamSessions.of(caller)
  const dropped = upstreamSessions.drop(caller)
  hold.open()
  await Promise.allSettled([opening, dropped])
  await clock.advance(0)
  assert.equal(upstreamSessions.current(caller), undefined)
  assert.ok(first.upstreamSessions.every((upstreamSession) => upstreamSession.ended.aborted))
})

test('dropping a caller does not wait for a hanging handshake', async () => {
  const { clock, first, upstreamSessions } = setUp()
  const caller = new TestCaller()
  first.gate = new Promise(() => {})
  const opening = assert.rejects(upstreamSessions.of(caller), { reason: 'cancelled' })
  await upstreamSessions.drop(caller)
  await opening
  assert.equal(clock.pending, 0)
})

test('all conversations can be ended at once, also those that are opening', async () => {
  const { first, upstreamSessions } = setUp()
  const caller = new TestCaller()
  await upstreamSessions.of(new TestCaller())
  const hold = gate()
  first.gate = hold.promise
  const opening = upstreamSessions.of(caller).catch(() => undefined)
  const closed = upstreamSessions.closeAll()
  hold.open()
  await Promise.all([opening, closed])
  assert.equal(upstreamSessions.size, 0)
  assert.ok(first.upstreamSessions.every((upstreamSession) => upstreamSession.ended.aborted))
})

test('a session that ends again and again is begun no more often than the server is probed, or after 30 s of life', async () => {
  const clock = new ManualClock()
  const ends: AbortController[] = []
  const upstream: Upstream = {
    open: () => {
      const end = new AbortController()
      ends.push(end)
      return Promise.resolve({
        initializeResult: { text: '{}', value: {} },
        keepsState: true,
        isAskedToRemember: true,
        ended: end.signal,
        exchange: () => Promise.reject(new Error('nobody calls')),
        post: () => Promise.resolve(),
        listen: () => undefined,
        close: () => Promise.resolve(),
      })
    },
    close: () => Promise.resolve(),
  }
  const upstreamSessions = new UpstreamSessions({ replicas: [upstream], clock, timeoutMs: 1_000 })
  const caller = new TestCaller()
  const end = async () => {
    ends.at(-1)!.abort(gatewayError('upstream_disconnected', 'cut'))
    await setImmediate()
  }
  await upstreamSessions.of(caller)
  for (let probe = 1; probe <= 3; probe++) {
    await end()
    assert.equal(ends.length, probe)
    upstreamSessions.restore()
    await setImmediate()
    assert.equal(ends.length, probe + 1)
  }
  await clock.advance(30_000)
  await end()
  assert.equal(ends.length, 5)
  await end()
  await upstreamSessions.drop(caller)
  upstreamSessions.restore()
  await setImmediate()
  assert.equal(ends.length, 5)
})
