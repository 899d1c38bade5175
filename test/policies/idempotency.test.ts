import assert from 'node:assert/strict'
import { test } from 'node:test'
import { idempotency } from '../../src/policies/idempotency.ts'
import { newCall, toolCall } from '../support/caller.ts'
import { testScope } from '../support/policy-context.ts'
import { answerTo, errorOf, HeldServer, keyed, leaving, read, setUp } from './idempotency/keyed.ts'
import { replayed } from '../../src/policies/idempotency/stored-outcome.ts'

test('calls with the same key at the same time run once, and each gets the answer under its own id', async () => {
  const { clock, server, send } = setUp()
  const first = send(keyed('k', { id: 'one' }))
  const second = send(keyed('k', { id: 2 }))
  await clock.advance(0)
  assert.equal(server.calls.length, 1)
  server.answer(0)
  await clock.advance(0)
  assert.deepEqual(read(first), { id: 'one', result: { n: 0 }, valueId: 'one' })
  assert.deepEqual(read(second), { id: 2, result: { n: 0 }, valueId: 2 })
  assert.deepEqual([replayed.of(first.call.record), replayed.of(second.call.record)], ['no', 'joined'])
})

test('a call whose key is known gets the answer again, under its own id and otherwise as it was written', async () => {
  const { clock, server, send } = setUp()
  send(keyed('k', { id: 1 }))
  server.answer(0, { big: 1.5 })
  await clock.advance(0)
  const later = send(keyed('k', { id: 'x' }))
  await clock.advance(0)
  assert.equal(server.calls.length, 1)
  assert.equal(replayed.of(later.call.record), 'stored')
  assert.ok(later.outcome?.kind === 'answered')
  assert.equal(later.outcome.result.text, '{ "result": {"n":0,"big":1.5}, "id": "x", "jsonrpc": "2.0" }')
  assert.deepEqual(later.outcome.result.value, JSON.parse(later.outcome.result.text))
})

test('an answer is kept for the window after its call was over, and not longer', async () => {
  const { clock, server, send, snapshot } = setUp({ settings: { window: '1m' } })
  send(keyed('k'))
  await clock.advance(30_000)
  server.answer(0)
  await clock.advance(0)
  await clock.advance(59_999)
  send(keyed('k'))
  assert.equal(server.calls.length, 1)
  await clock.advance(1)
  send(keyed('k'))
  assert.equal(server.calls.length, 2)
  assert.deepEqual(snapshot(), { underWay: 1, over: 0, bytes: 0, evicted: 0 })
})

test('answers whose window is over make room as others end, though nobody asks for them again', async () => {
  const { clock, server, send, snapshot } = setUp({ settings: { window: '1m' } })
  for (let n = 0; n < 5; n++) {
    send(keyed(`k${n}`))
    server.answer(n)
    await clock.advance(30_000)
  }
  assert.deepEqual([snapshot().over, snapshot().evicted], [2, 0])
})

test('an error of a tool is kept, with flags and verdict', async () => {
  const { clock, server, send } = setUp()
  send(keyed('k'))
  const partial = { source: 'declared', reason: 'x', notice: false } as const
  server.end(0, { ...answerTo(server.calls[0]!, { isError: true }), verdict: 'tool_error', partial })
  await clock.advance(0)
  const again = send(keyed('k'))
  await clock.advance(0)
  const { outcome } = again
  assert.ok(outcome?.kind === 'answered')
  assert.equal(outcome.verdict, 'tool_error')
  assert.equal(outcome.partial, partial)
})

test('a key that was used with other arguments is refused, while the call runs and afterwards', async () => {
  const { clock, server, send } = setUp()
  send(keyed('k', { args: { a: 1, b: 2 } }))
  const during = send(keyed('k', { args: { a: 1, b: 3 } }))
  const sameAgain = send(keyed('k', { args: { b: 2, a: 1 } }))
  server.answer(0)
  await clock.advance(0)
  const after = send(keyed('k', { args: {} }))
  await clock.advance(0)
  for (const { outcome } of [during, after]) {
    assert.ok(outcome?.kind === 'rejected')
    assert.equal(outcome.by, 'idempotency')
    assert.equal(outcome.error.reason, 'idempotency_conflict')
    assert.match(outcome.error.message, /^this idempotency key was used for another call \(other arguments, /)
  }
  assert.ok(read(sameAgain))
  assert.equal(server.calls.length, 1)
})

test('a key counts for one tool and one set of forwarded headers', async () => {
  const { clock, server, send } = setUp()
  const alice = { 'x-user': 'alice', 'x-team': 'blue' }
  send(keyed('k', { headers: alice }))
  send(keyed('k', { headers: { 'x-user': 'bob', 'x-team': 'blue' } }))
  send(keyed('k'))
  send(keyed('k', { headers: alice, tool: 'other' }))
  send(keyed('other', { headers: alice }))
  await clock.advance(0)
  assert.equal(server.calls.length, 5)
  send(keyed('k', { headers: { 'x-team': 'blue', 'x-user': 'alice', 'mcp-param-a': '1' } }))
  await clock.advance(0)
  assert.equal(server.calls.length, 5)
})

test('the tools of a server share their memory, and another generation finds the memory', async () => {
  const before = setUp()
  before.send(keyed('k'))
  before.server.answer(0)
  await before.clock.advance(0)
  const after = setUp({ context: before.context, tool: 'renamed', settings: { window: '1h' } })
  const again = after.send(keyed('k'))
  await after.clock.advance(0)
  assert.ok(read(again))
  assert.equal(after.server.calls.length, 0)
})

test('calls without a key, and other requests with a key, pass untouched', async () => {
  const { clock, server, send, snapshot } = setUp()
  const plain = toolCall('tool')
  send(plain)
  const params = { name: 'p', _meta: { 'dev.breakwater/idempotency-key': 'k' } }
  for (let i = 0; i < 2; i++) send(newCall({ method: 'prompts/get', params }))
  await clock.advance(0)
  assert.equal(server.calls.length, 3)
  assert.equal(server.calls[0], plain)
  assert.deepEqual(snapshot(), { underWay: 0, over: 0, bytes: 0, evicted: 0 })
  assert.equal(clock.pending, 0)
})

test('a key that is no string of 1 to 256 characters is refused, so that nobody relies on it', async () => {
  const { clock, server, send } = setUp()
  for (const key of ['', 'x'.repeat(257), 7, null, {}]) {
    const refused = send(keyed(key))
    await clock.advance(0)
    assert.equal(errorOf(refused)?.reason, 'invalid_arguments', JSON.stringify(key))
  }
  assert.equal(server.calls.length, 0)
  send(keyed('x'.repeat(256)))
  assert.equal(server.calls.length, 1)
})

test('a call that was given up before it began is not detached, and leaves no key behind', async () => {
  const { clock, server, send, snapshot } = setUp()
  const { call, leave } = leaving('k')
  leave()
  send(call)
  await clock.advance(0)
  assert.equal(server.calls[0], call)
  assert.equal(snapshot().underWay, 0)
})

test('an answer that asks for more input is passed on and forgotten: the call goes on with another request', async () => {
  const { clock, server, send, snapshot } = setUp()
  const first = send(keyed('k'))
  server.answer(0, { resultType: 'input_required' })
  await clock.advance(0)
  assert.ok(read(first))
  assert.equal(snapshot().over, 0)
  send(keyed('k'))
  server.answer(1, { resultType: 'complete' })
  await clock.advance(0)
  assert.equal(snapshot().over, 1)
})

test('a defect in the run is reported to waiting callers, and does not run again', async () => {
  const { clock, context } = setUp()
  const scope = testScope({ effect: 'write' })
  let runs = 0
  const service = idempotency.build(
    idempotency.schema.parse({}),
    context,
    scope,
  )((call) => {
    runs++
    call.record.sent = true
    throw new Error('a defect')
  })
  await assert.rejects(service(keyed('k')), /a defect/)
  const again = await service(keyed('k'))
  assert.equal(errorOf({ outcome: again })?.reason, 'internal')
  assert.equal(runs, 1)
  await clock.advance(300_000)
  assert.equal(clock.pending, 0)
})

test('the defaults are known, and invalid settings are refused', () => {
  assert.deepEqual(idempotency.schema.parse({}), {
    key: 'explicit',
    scope: 'tenant',
    window: 600_000,
    limit: 300_000,
    maxKeys: 10_000,
    maxSize: 16 * 1024 ** 2,
  })
  for (const bad of [
    { key: 'always' },
    { scope: 'session' },
    { window: 0 },
    { limit: 0 },
    { maxKeys: 0 },
    { other: 1 },
  ]) {
    assert.equal(idempotency.schema.safeParse(bad).success, false, JSON.stringify(bad))
  }
})

test('a running call holds its server and the process, but not for callers that have left', async () => {
  const { clock, context } = setUp()
  let held = 0
  const hold = () => {
    held++
    return () => void held--
  }
  const server = new HeldServer()
  const scope = testScope({ effect: 'write', hold })
  const service = idempotency.build(idempotency.schema.parse({}), context, scope)(server.service)
  const { call, leave } = leaving('k')
  const left = service(call)
  leave()
  assert.equal((await left).kind, 'failed')
  assert.equal(held, 1)
  server.answer(0)
  await clock.advance(0)
  assert.equal(held, 0)
})
