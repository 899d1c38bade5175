import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { Effect } from '../../../src/mesh/policy.ts'
import type { Runs } from '../../../src/policies/idempotency/runs.ts'
import { testPolicyContext } from '../../support/policy-context.ts'
import { ManualClock } from '../../support/manual-clock.ts'
import { MemoryStore } from '../../support/memory-store.ts'
import { answerTo, errorOf, keyed, leaving, read, setUp } from './keyed.ts'
import { replayed } from '../../../src/policies/idempotency/stored-outcome.ts'

const EPOCH = Date.UTC(2026, 0, 1)

interface Process {
  readonly settings?: object
  readonly effect?: Effect
  readonly server?: string
  /** Start of this process after the first process, in milliseconds. */
  readonly laterMs?: number
}

/** Starts a gateway's process on a store; earlier processes ended as if killed. */
function begin(store: MemoryStore, { laterMs = 0, ...options }: Process = {}) {
  return setUp({ ...options, context: testPolicyContext(new ManualClock(EPOCH + laterMs), [], store) })
}

test('a call is sent after the note that it may run, and not before', async () => {
  const store = new MemoryStore()
  store.hold()
  const { clock, server, send } = begin(store)
  const [first, joined] = [send(keyed('k')), send(keyed('k'))]
  await clock.advance(0)
  assert.equal(server.calls.length, 0)
  assert.equal(store.records.size, 1)
  store.release()
  await clock.advance(0)
  assert.equal(server.calls.length, 1)
  server.answer(0)
  await clock.advance(0)
  assert.ok(read(first) && read(joined))
})

test('a call under way when the process was killed may have run: the call does not run again, and its caller is told', async () => {
  const store = new MemoryStore()
  const before = begin(store)
  before.send(keyed('k'))
  await before.clock.advance(0)
  assert.equal(before.server.calls.length, 1)

  const after = begin(store, { laterMs: 1_000 })
  const again = after.send(keyed('k'))
  const other = after.send(keyed('k', { args: { a: 1 } }))
  await after.clock.advance(0)
  assert.equal(after.server.calls.length, 0)
  assert.equal(replayed.of(again.call.record), 'stored')
  assert.deepEqual([errorOf(again)?.reason, errorOf(again)?.sent], ['upstream_disconnected', true])
  assert.equal(
    errorOf(again)?.message,
    'the gateway ended while the call was under way; a call with this idempotency key may have run, and is not run again',
  )
  assert.equal(errorOf(other)?.reason, 'idempotency_conflict')
})

test('the next process knows the end of a call, for the same time as the first process', async () => {
  const store = new MemoryStore()
  const settings = { window: '1m', limit: '5m', maxSize: '1KiB' }
  const before = begin(store, { settings })
  for (const key of ['answered', 'failed', 'large']) before.send(keyed(key))
  await before.clock.advance(0)
  const partial = { source: 'declared', reason: 'x', notice: false } as const
  const ended = {
    ...answerTo(before.server.calls[0]!, { isError: true }),
    verdict: 'tool_error' as const,
    partial,
  }
  before.server.end(0, ended)
  before.server.fail(1, 'upstream_refused', true)
  before.server.answer(2, { text: 'x'.repeat(2_000) })
  await before.clock.advance(0)

  const after = begin(store, { settings, laterMs: 59_999 })
  const [answered, failed, large] = ['answered', 'failed', 'large'].map((key) =>
    after.send(keyed(key, { id: 7 })),
  )
  await after.clock.advance(0)
  assert.equal(after.server.calls.length, 0)
  const text = ended.result.text.replace(/"id": "[^"]*"/, '"id": 7')
  assert.deepEqual(answered?.outcome, {
    ...ended,
    result: { text, value: JSON.parse(text) as unknown, status: 200 },
  })
  assert.deepEqual([errorOf(failed!)?.reason, errorOf(failed!)?.sent], ['upstream_refused', true])
  assert.match(errorOf(failed!)?.message ?? '', /^it broke; a call with this idempotency key may have run/)
  assert.match(errorOf(large!)?.message ?? '', /has run; its answer of \d+ bytes was too large/)

  await after.clock.advance(1)
  for (const key of ['answered', 'failed', 'large']) after.send(keyed(key))
  await after.clock.advance(0)
  assert.equal(after.server.calls.length, 3)
})

test('a call without a known end is remembered for as long as it may have run, plus the window', async () => {
  const store = new MemoryStore()
  const settings = { window: '1m', limit: '2m' }
  begin(store, { settings }).send(keyed('k'))
  const after = begin(store, { settings, laterMs: 179_999 })
  after.send(keyed('k'))
  await after.clock.advance(1)
  assert.equal(after.server.calls.length, 0)
  after.send(keyed('k'))
  await after.clock.advance(0)
  assert.equal(after.server.calls.length, 1)
})

test('a call that did not run leaves nothing behind, and neither does a forgotten call', async () => {
  const store = new MemoryStore()
  const { clock, server, send } = begin(store, { settings: { maxKeys: 2, window: '1s' } })
  send(keyed('refused'))
  await clock.advance(0)
  server.fail(0, 'upstream_unavailable', false)
  await clock.advance(0)
  assert.equal(store.records.size, 0)
  for (let n = 1; n < 5; n++) {
    send(keyed(`k${n}`))
    await clock.advance(0)
    server.answer(n)
    await clock.advance(0)
    assert.equal(store.records.size, 1)
    await clock.advance(1_000)
  }
  send(keyed('k4'))
  await clock.advance(0)
  server.fail(5, 'upstream_unauthorized', true)
  await clock.advance(0)
  assert.equal(store.records.size, 0)
})

test('keys of an earlier process hold the places of their tenant, and their answers are for the same agents', async () => {
  const store = new MemoryStore()
  const settings = { maxKeys: 4 }
  const before = begin(store, { settings })
  const inbound = { authorization: 'Bearer a' }
  for (const [n, key] of ['k0', 'k1'].entries()) {
    before.send(keyed(key, { inbound }))
    await before.clock.advance(0)
    before.server.answer(n)
    await before.clock.advance(0)
  }
  const after = begin(store, { settings, laterMs: 1_000 })
  const sent = [
    after.send(keyed('k2')),
    after.send(keyed('k0')),
    after.send(keyed('k0', { inbound })),
    after.send(keyed('k2', { tenant: 'other' })),
  ]
  await after.clock.advance(0)
  assert.deepEqual(
    sent.map((each) => errorOf(each)?.reason ?? (read(each) && 'answered')),
    ['idempotency_full', 'idempotency_conflict', 'answered', undefined],
  )
  assert.equal(after.server.calls.length, 1)
})

test('answers that are kept take no more room in the store than they may', async () => {
  const store = new MemoryStore()
  const { clock, server, send, snapshot } = begin(store, { settings: { maxSize: '2KiB' } })
  for (let n = 0; n < 5; n++) {
    send(keyed(`k${n}`))
    await clock.advance(0)
    server.end(n, answerTo(server.calls[n]!, { text: 'x'.repeat(900) }))
    await clock.advance(0)
  }
  assert.equal(store.records.size, 5)
  const after = begin(store)
  const [kept, dropped] = [after.send(keyed('k4')), after.send(keyed('k0'))]
  await after.clock.advance(0)
  assert.deepEqual([after.snapshot().over, after.snapshot().bytes], [5, snapshot().bytes])
  assert.ok(read(kept))
  assert.ok(dropped.outcome?.kind === 'rejected' && dropped.outcome.error.reason === 'idempotency_conflict')
  assert.equal(after.server.calls.length, 0)
})

test('a call that may run twice is not noted before its answer, and waits for nothing', async () => {
  const store = new MemoryStore()
  store.hold()
  const { clock, server, send } = begin(store, { effect: 'idempotent' })
  send(keyed('k'))
  assert.equal(server.calls.length, 1)
  assert.equal(store.records.size, 0)
  server.answer(0)
  await clock.advance(0)
  const after = begin(store, { effect: 'idempotent' })
  const again = after.send(keyed('k'))
  await after.clock.advance(0)
  assert.ok(read(again))
})

test('a caller that leaves before the call is noted is told that the call may run, and the call runs', async () => {
  const store = new MemoryStore()
  store.hold()
  const { clock, server, send } = begin(store)
  const { call, leave } = leaving('k')
  const first = send(call)
  leave()
  await clock.advance(0)
  assert.deepEqual([errorOf(first)?.reason, errorOf(first)?.sent], ['cancelled', true])
  store.release()
  await clock.advance(0)
  assert.equal(server.calls.length, 1)
})

test('records of the same key at another server are separate', async () => {
  const store = new MemoryStore()
  const before = begin(store)
  before.send(keyed('k'))
  await before.clock.advance(0)
  const other = begin(store, { server: 'other' })
  other.send(keyed('k'))
  await other.clock.advance(0)
  assert.equal(other.server.calls.length, 1)
})

test('a record that nobody can read is deleted, and stops nothing', async () => {
  const store = new MemoryStore()
  const records = store.of({ kind: 'idempotency', set: 'default', server: 'test' })
  const good = { reason: 'upstream_refused', message: 'x' }
  const bad = [
    7,
    {},
    { fingerprint: 'f' },
    { fingerprint: 'f', kept: { kind: 'failed', error: { ...good, reason: 7 } } },
  ]
  for (const [index, value] of bad.entries()) await records.put(String(index), value, EPOCH + 60_000)
  const { server, send, snapshot, clock } = begin(store)
  send(keyed('k'))
  await clock.advance(0)
  assert.equal(server.calls.length, 1)
  assert.deepEqual(snapshot(), { underWay: 1, over: 0, bytes: 0, evicted: 0 })
  assert.equal(store.records.size, 1)
})

test('a key dropped for good is dropped from the store too, and a later end is not stored', async () => {
  const store = new MemoryStore()
  const { clock, context, server, send } = begin(store)
  for (const key of ['over', 'running']) send(keyed(key))
  await clock.advance(0)
  server.answer(0)
  await clock.advance(0)
  assert.equal(store.records.size, 2)
  context.state.list<Runs>('idempotency')[0]![1].close()
  assert.equal(store.records.size, 0)
  server.answer(1)
  await clock.advance(0)
  assert.equal(store.records.size, 0)
})
