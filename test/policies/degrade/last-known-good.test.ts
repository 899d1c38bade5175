import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { Call } from '../../../src/mesh/call.ts'
import type { LastKnownGood } from '../../../src/policies/degrade.ts'
import { type CallParts, newCall, TestCaller, toolCall } from '../../support/caller.ts'
import { answer, read, rejected, setUp } from './degraded.ts'
import { largeMessage } from '../../support/large-message.ts'

/** A tool that has answered some calls and then broke. */
function breaking(settings: object = {}, scope: Parameters<typeof setUp>[1] = {}) {
  const set = setUp({ lastKnownGood: settings }, scope)
  const { play, service, context } = set
  const good = (call: Call, result: object = { good: true }, more: object = {}) => {
    play.script = () => ({ ...answer(call, result), ...more })
    return service(call)
  }
  const ask = async (call: Call) => {
    play.script = () => rejected
    return read(await service(call))
  }
  const snapshot = () => context.state.list<LastKnownGood>('last-known-good')[0]![1].snapshot()
  return { ...set, good, ask, snapshot }
}

const call = (args: Record<string, unknown> = {}, parts: Partial<CallParts> = {}) =>
  toolCall('tool', args, parts)
const lost = { error: 'breaker_open' }

test('the last good answer to the same arguments is given again, with its age', async () => {
  const { clock, good, ask } = breaking()
  await good(call({ q: 'x', n: 1 }), { old: true })
  await good(call({ q: 'x', n: 1 }), { v: 1.5 })
  await clock.advance(41_600)
  assert.deepEqual(await ask(call({ n: 1, q: 'x' }, { id: 'mine' })), {
    id: 'mine',
    result: { v: 1.5 },
    valueId: 'mine',
    partial: {
      source: 'stale',
      reason: 'this answer is 42s old, because test/tool failed: breaker open',
      notice: true,
    },
  })
  assert.deepEqual(await ask(call({ q: 'y', n: 1 })), lost)
})

test('an answer is not given again when it is too old', async () => {
  const { clock, good, ask } = breaking({ maxAge: '1m' })
  await good(call())
  await clock.advance(60_000)
  assert.ok('result' in (await ask(call())))
  await clock.advance(1)
  assert.deepEqual(await ask(call()), lost)
})

test('a later answer that is too large to keep is not read, and takes the place of the one before', async () => {
  const { good, ask, snapshot } = breaking({ maxSize: '1KiB' })
  await good(call())
  const result = largeMessage(JSON.stringify({ id: 1, result: { text: 'x'.repeat(100_000) } }))
  Object.defineProperty(result, 'text', { get: () => assert.fail('the text was read') })
  await good(call(), {}, { result })
  assert.deepEqual(snapshot(), { answers: 0, bytes: 0 })
  assert.deepEqual(await ask(call()), lost)
})

test('nobody sees the answer that was given to other forwarded headers', async () => {
  const { good, ask } = breaking()
  const as = (user: string): Call => ({ ...call(), headers: { 'x-user': user } })
  await good(as('alice'))
  assert.deepEqual(await ask(as('bob')), lost)
  assert.deepEqual(await ask(call()), lost)
  assert.ok('result' in (await ask(as('alice'))))
})

test('a tool that shares its chain with others has answers of its own', async () => {
  const { good, ask } = breaking()
  await good(call())
  assert.deepEqual(await ask(toolCall('other')), lost)
})

test('the eras, which get results of other shapes, do not share answers', async () => {
  const { good, ask } = breaking()
  await good(call())
  assert.deepEqual(await ask(call({}, { caller: new TestCaller({ era: 'modern' }) })), lost)
})

test('only answers of tools that only read are kept', async () => {
  for (const effect of ['idempotent', 'write', 'unknown'] as const) {
    const { good, ask } = breaking({}, { scope: { effect } })
    await good(call())
    assert.deepEqual(await ask(call()), lost, effect)
  }
})

test('an answer is not given again once its tool is known to change something', async () => {
  const scope = { effect: 'read_only' as 'read_only' | 'write' }
  const { good, ask } = breaking({}, { scope: { effectOf: () => scope.effect } })
  await good(call())
  scope.effect = 'write'
  assert.deepEqual(await ask(call()), lost)
})

test('only good answers are kept: none that is wrong, partial, an error, or not the last word', async () => {
  const { good, ask, snapshot } = breaking()
  const verdicts = ['tool_error', 'schema_invalid', 'partial_silent', 'partial_declared', 'drift'] as const
  for (const verdict of verdicts) await good(call(), {}, { verdict })
  await good(call(), {}, { partial: { source: 'declared', reason: 'x', notice: false } })
  await good(call(), { resultType: 'input_required' })
  await good(newCall({ method: 'tools/call', params: { name: 'tool', task: {} } }))
  assert.deepEqual(await ask(call()), lost)
  assert.equal(snapshot().answers, 0)
  await good(call(), {}, { verdict: 'correct' })
  assert.equal(snapshot().answers, 1)
})

test('kept answers are limited in number and bytes; the oldest go first', async () => {
  const few = breaking({ maxEntries: 2 })
  for (const n of [1, 2, 1, 3]) await few.good(call({ n }))
  assert.deepEqual(await few.ask(call({ n: 2 })), lost)
  for (const n of [1, 3]) assert.ok('result' in (await few.ask(call({ n }))))

  const small = breaking({ maxSize: '2KiB' })
  for (const n of [1, 2, 3]) await small.good(call({ n }), { text: 'x'.repeat(900) })
  assert.equal(small.snapshot().answers, 2)
  assert.ok(small.snapshot().bytes <= 2_048)
  await small.good(call({ n: 3 }), { text: 'x'.repeat(3_000) })
  assert.deepEqual(await small.ask(call({ n: 3 })), lost)
  assert.equal(small.snapshot().answers, 1)
})

test('answers are found again by another generation', async () => {
  const before = breaking()
  await before.good(call())
  const after = breaking({ maxAge: '1h' }, { context: before.context })
  assert.ok('result' in (await after.ask(call())))
})
