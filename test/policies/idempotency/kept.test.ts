import assert from 'node:assert/strict'
import { test } from 'node:test'
import { readStored } from '../../../src/policies/idempotency/stored-outcome.ts'
import { verdictIn } from '../../../src/mesh/classify.ts'
import { gatewayError, type Reason } from '../../../src/mesh/errors.ts'
import { until } from '../../support/until.ts'
import { TestCaller, toolCall } from '../../support/caller.ts'
import { answerTo, errorOf, keyed, read, setUp } from './keyed.ts'
import { isStillBytes, largeMessage } from '../../support/large-message.ts'
import { bulkheadFull } from '../../../src/policies/bulkhead.ts'

/** A tool's run may cause a status such as 404 or 400: only some statuses come before the run. */
const mayHaveRun: readonly Reason[] = [
  'upstream_disconnected',
  'upstream_refused',
  'upstream_status',
  'attempt_timeout',
  'bad_reply',
  'internal',
]

test('a failed call that may have run does not run again: its failure is repeated', async () => {
  for (const reason of mayHaveRun) {
    const { clock, server, send } = setUp({ effect: 'unknown' })
    send(keyed('k'))
    server.fail(0, reason, true)
    await clock.advance(0)
    const again = send(keyed('k'))
    await clock.advance(0)
    assert.equal(server.calls.length, 1, reason)
    assert.equal(errorOf(again)?.reason, reason)
    assert.equal(errorOf(again)?.sent, true)
    assert.equal(
      errorOf(again)?.message,
      'it broke; a call with this idempotency key may have run, and is not run again',
    )
  }
})

test('a wrong answer that was held back stays one, for whoever sends its key again', async () => {
  const { clock, server, send } = setUp({ effect: 'unknown' })
  const held = {
    kind: 'failed',
    error: gatewayError('incorrect_result', 'it is wrong', { sent: true }),
  } as const
  const first = send(keyed('k'))
  server.end(0, { ...held, verdict: 'schema_invalid' })
  await clock.advance(0)
  const again = send(keyed('k'))
  await clock.advance(0)
  assert.equal(server.calls.length, 1)
  for (const { outcome } of [first, again]) assert.equal(outcome && verdictIn(outcome), 'schema_invalid')
})

test('a call with an ended conversation is reported as lost to all other callers, because they have not cancelled', async () => {
  for (const reason of ['cancelled', 'session_lost'] as const) {
    const { clock, server, send } = setUp()
    const first = send(keyed('k'))
    const joined = send(keyed('k'))
    server.fail(0, reason, true)
    await clock.advance(0)
    const again = send(keyed('k'))
    await clock.advance(0)
    assert.equal(server.calls.length, 1)
    assert.equal(errorOf(first)?.reason, reason)
    for (const other of [joined, again])
      assert.deepEqual([errorOf(other)?.reason, errorOf(other)?.sent], ['upstream_disconnected', true])
  }
})

test('a call that was never sent, or that its server refused to run, runs when it comes again', async () => {
  const ends: [Reason, boolean][] = [
    ['upstream_unavailable', false],
    ['cancelled', false],
    ['session_lost', false],
    ['upstream_refused', false],
    ['upstream_rate_limited', true],
    ['upstream_unauthorized', true],
    ['upstream_forbidden', true],
  ]
  for (const [reason, sent] of ends) {
    const { clock, server, send, snapshot } = setUp()
    send(keyed('k'))
    server.fail(0, reason, sent)
    await clock.advance(0)
    assert.equal(snapshot().over, 0)
    const again = send(keyed('k'))
    assert.equal(server.calls.length, 2, reason)
    server.answer(1)
    await clock.advance(0)
    assert.ok(read(again), reason)
  }
})

test('a rejected call runs when sent again; joined callers get the rejection', async () => {
  const { clock, server, send } = setUp()
  send(keyed('k'))
  const joined = send(keyed('k'))
  const error = gatewayError(bulkheadFull, 'bulkhead full (8 of 8)', { retryAfterMs: 5 })
  server.end(0, { kind: 'rejected', error, by: 'bulkhead' })
  await clock.advance(0)
  assert.deepEqual(joined.outcome, { kind: 'rejected', error, by: 'bulkhead' })
  send(keyed('k'))
  assert.equal(server.calls.length, 2)
})

test('a failed call that does no harm when it runs twice may do so', async () => {
  for (const effect of ['read_only', 'idempotent'] as const) {
    const { clock, server, send } = setUp({ effect })
    send(keyed('k'))
    server.fail(0, 'upstream_disconnected', true)
    await clock.advance(0)
    send(keyed('k'))
    assert.equal(server.calls.length, 2, effect)
  }
})

test('an error of a server is a kept answer, with any HTTP status', async () => {
  for (const status of [200, 400, 404, 500, 503]) {
    const { clock, server, send } = setUp()
    send(keyed('k'))
    const text = '{"jsonrpc":"2.0","id":0,"error":{"code":-32603,"message":"x"}}'
    const value = JSON.parse(text) as Record<string, unknown>
    server.end(0, { kind: 'answered', result: { text, value, status }, verdict: 'rpc_error' })
    await clock.advance(0)
    const again = send(keyed('k', { id: 9 }))
    await clock.advance(0)
    assert.equal(server.calls.length, 1)
    assert.ok(again.outcome?.kind === 'answered')
    assert.equal(again.outcome.result.text, text.replace('"id":0', '"id":9'))
    assert.equal(again.outcome.result.status, status)
  }
})

test('a joined caller gets a large answer under its own id, without a text of the answer', async () => {
  const { clock, server, send } = setUp()
  const [first, joined] = [send(keyed('k', { id: 1 })), send(keyed('k', { id: 2 }))]
  const text = `{"id":1,"result":{"text":"${'x'.repeat(2_000_000)}"}}`
  server.end(0, { kind: 'answered', result: largeMessage(text), verdict: 'unchecked' })
  await clock.advance(0)
  for (const [{ outcome }, id] of [
    [first, 1],
    [joined, 2],
  ] as const) {
    assert.ok(outcome?.kind === 'answered')
    assert.ok(isStillBytes(outcome.result))
    assert.equal(outcome.result.value.id, id)
    assert.ok(outcome.result.text === text.replace('"id":1', `"id":${id}`))
  }
})

test('an answer too large to keep is remembered as given, so the call does not run again', async () => {
  const { clock, server, send, snapshot } = setUp()
  const [first, joined] = [send(keyed('k')), send(keyed('k'))]
  server.answer(0, { text: 'ä'.repeat(600_000) })
  await clock.advance(0)
  // A large text is copied for joined callers in a separate turn.
  await until('both calls are answered', () => first.outcome !== undefined && joined.outcome !== undefined)
  assert.ok(read(first) && read(joined))
  assert.deepEqual(snapshot(), { underWay: 0, over: 1, bytes: 0, evicted: 0 })
  const again = send(keyed('k'))
  await clock.advance(0)
  assert.equal(server.calls.length, 1)
  assert.ok(again.outcome?.kind === 'rejected')
  assert.deepEqual([again.outcome.error.reason, again.outcome.error.sent], ['idempotency_conflict', true])
  assert.match(again.outcome.error.message, /has run; its answer of 12000\d\d bytes was too large to keep/)
})

test('a key inside its window never makes room: a tenant alone stops at half of the places, and others find theirs', async () => {
  const { clock, server, send, snapshot } = setUp({ settings: { maxKeys: 4, window: '1m' } })
  const sendAs = async (tenant: string, key: string) => {
    const before = server.calls.length
    const caller = Object.assign(new TestCaller(), { client: `address of ${tenant}` })
    const sent = send(keyed(key, { tenant, caller }))
    const ran = server.calls.length > before
    if (ran) server.answer(before)
    await clock.advance(0)
    return { ran, sent }
  }
  assert.ok((await sendAs('a', 'k0')).ran)
  await clock.advance(10_000)
  assert.ok((await sendAs('a', 'k1')).ran)
  const third = await sendAs('a', 'k2')
  assert.ok(!third.ran && third.sent.outcome?.kind === 'rejected')
  const { reason, retryable, sent, retryAfterMs, message } = third.sent.outcome.error
  assert.deepEqual(
    [reason, retryable, sent, retryAfterMs, message],
    [
      'idempotency_full',
      true,
      false,
      50_000,
      'no place for a new idempotency key, so the call was not run: this tenant has 2 of 4 (maxKeys)',
    ],
  )
  assert.ok((await sendAs('b', 'k0')).ran)
  assert.match(String(errorOf((await sendAs('b', 'k1')).sent)?.message), /this tenant has 1 /)
  assert.ok((await sendAs('c', 'k0')).ran)
  assert.match(String(errorOf((await sendAs('d', 'k0')).sent)?.message), /all tenants together have 4 /)
  for (const key of ['k0', 'k1']) assert.ok(read((await sendAs('a', key)).sent))
  assert.deepEqual([server.calls.length, snapshot().over, snapshot().evicted], [4, 4, 0])
  await clock.advance(50_000)
  assert.ok((await sendAs('d', 'k0')).ran)
  assert.ok((await sendAs('a', 'k1')).sent.outcome?.kind === 'answered')
  assert.equal(server.calls.length, 5)
})

test('tenants of one client stop at seven eighths of the places, and other clients find theirs', async () => {
  const { server, send } = setUp({ settings: { maxKeys: 8 } })
  const [one, other] = ['one', 'other'].map((client) => Object.assign(new TestCaller(), { client }))
  const refused = Array.from({ length: 8 }, (_, n) => send(keyed('k', { tenant: `t${n}`, caller: one! })))
  assert.equal(server.calls.length, 7)
  await Promise.resolve()
  assert.match(String(errorOf(refused[7]!)?.message), /the tenants of this client have 7 /)
  send(keyed('k', { tenant: 'own', caller: other! }))
  assert.equal(server.calls.length, 8)
})

test('clients without a tenant have a share each, by their addresses', async () => {
  const { clock, server, send } = setUp({ settings: { maxKeys: 4 } })
  const sendFrom = (client: string, key: string) =>
    send(keyed(key, { tenant: '', caller: Object.assign(new TestCaller(), { client }) }))
  for (const key of ['a', 'b', 'c']) sendFrom('one', key)
  const refused = sendFrom('one', 'd')
  await clock.advance(0)
  assert.match(String(errorOf(refused)?.message), /this tenant has 2 /)
  sendFrom('other', 'e')
  assert.equal(server.calls.length, 3)
})

test('a new tenant is told to come back in a second, and has its own share by then', async () => {
  const { clock, server, send } = setUp({ settings: { maxKeys: 2, window: '1m' } })
  const asNewcomer = (tenant: string) => ({ ...keyed('k', { tenant }), countsAs: 'newcomers' })
  send(asNewcomer('a'))
  server.answer(0)
  await clock.advance(0)
  const refused = send(asNewcomer('b'))
  await clock.advance(0)
  assert.equal(errorOf(refused)?.retryAfterMs, 1_000)
  send(keyed('k', { tenant: 'b' }))
  assert.equal(server.calls.length, 2)
})

test('a key whose window is over makes room, also behind one with a longer window', async () => {
  const long = setUp({ settings: { maxKeys: 4, window: '1h' } })
  const { clock, context } = long
  const short = setUp({ settings: { maxKeys: 4, window: '1m' }, context })
  long.send(keyed('long'))
  long.server.answer(0)
  await clock.advance(0)
  short.send(keyed('short'))
  short.server.answer(0)
  await clock.advance(0)
  const refused = short.send(keyed('new'))
  await clock.advance(60_000)
  assert.equal(errorOf(refused)?.retryAfterMs, 60_000)
  short.send(keyed('new'))
  assert.equal(short.server.calls.length, 2)
  long.send(keyed('long'))
  assert.equal(long.server.calls.length, 1)
})

test('a call under way holds its place, and frees the place early only without a run', async () => {
  const { clock, server, send } = setUp({ settings: { maxKeys: 4, window: '1m' } })
  for (const key of ['a', 'b']) send(keyed(key))
  const third = send(keyed('c'))
  const known = send(keyed('a'))
  const plain = send(toolCall('tool'))
  await clock.advance(0)
  assert.deepEqual([errorOf(third)?.reason, errorOf(third)?.retryAfterMs], ['idempotency_full', 1_000])
  assert.deepEqual([server.calls.length, known.outcome, plain.outcome], [3, undefined, undefined])
  server.answer(0)
  await clock.advance(0)
  const still = send(keyed('c'))
  await clock.advance(0)
  assert.equal(errorOf(still)?.retryAfterMs, 60_000)
  server.fail(1, 'upstream_unavailable', false)
  await clock.advance(0)
  send(keyed('c'))
  assert.equal(server.calls.length, 4)
})

for (const effect of ['write', 'idempotent'] as const)
  test(`answers stay within their room: the oldest go first, and the fact of their run stays: ${effect}`, async () => {
    const { clock, server, send, snapshot } = setUp({ settings: { maxSize: '2KiB' }, effect })
    send(keyed('lost'))
    server.fail(0, 'upstream_disconnected', true)
    await clock.advance(0)
    for (let n = 1; n < 6; n++) {
      send(keyed(`k${n}`))
      server.end(n, answerTo(server.calls[n]!, { text: 'x'.repeat(900) }))
      await clock.advance(0)
      assert.ok(snapshot().bytes <= 2_048)
    }
    // A failed call that may run twice leaves no trace.
    assert.deepEqual([snapshot().over, snapshot().evicted], [effect === 'write' ? 6 : 5, 3])
    const kept = ['k4', 'k5'].map((key) => send(keyed(key)))
    await clock.advance(0)
    assert.ok(kept.every(read))
    assert.equal(server.calls.length, 6)
    const again = send(keyed('k1'))
    const lost = send(keyed('lost'))
    await clock.advance(0)
    assert.equal(server.calls.length, effect === 'write' ? 6 : 8)
    if (effect === 'idempotent') return
    assert.ok(again.outcome?.kind === 'rejected' && lost.outcome?.kind === 'failed')
    assert.deepEqual([again.outcome.error.reason, again.outcome.error.sent], ['idempotency_conflict', true])
    assert.match(
      again.outcome.error.message,
      /has run; its answer of \d+ bytes was dropped to make room for later answers/,
    )
    assert.match(lost.outcome.error.message, /may have run, and is not run again/)
  })

test('a record that says less of an error is a record still: the call may have run', () => {
  const error = { reason: 'upstream_disconnected', message: 'the gateway ended while the call was under way' }
  const share = { tenant: 'tenant a', client: '' }
  const record = readStored({ fingerprint: 'f', reader: '', share, kept: { kind: 'failed', error } })
  assert.ok(record?.kept.kind === 'failed')
  assert.deepEqual([record.kept.error.reason, record.kept.error.sent], ['upstream_disconnected', true])
})
