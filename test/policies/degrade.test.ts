import { idempotencyConflict } from '../../src/policies/idempotency/stored-outcome.ts'
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { Cancellation } from '../../src/mesh/cancel.ts'
import { gatewayError } from '../../src/mesh/errors.ts'
import { degrade } from '../../src/policies/degrade.ts'
import { newCall, toolCall } from '../support/caller.ts'
import { answer, failed, otherTools, read, rejected, rpcError, setUp } from './degrade/degraded.ts'

const text = { static: { text: 'nothing found' } }

test('an answer passes unchanged', async () => {
  const whole = answer(toolCall('tool'))
  const { service } = setUp(text, { script: () => whole })
  assert.equal(await service(toolCall('tool')), whole)
})

test('a failed or rejected call gets another answer, flagged with the reason', async () => {
  const ends = [
    [rejected, 'breaker open'],
    [failed('attempt_timeout', 'no answer within 5 ms'), 'no answer within 5 ms'],
    [rpcError(toolCall('tool'), -32603, 'database is down'), 'database is down'],
    [rpcError(toolCall('tool'), 1, ''), 'the server answered with an error'],
  ] as const
  for (const [end, why] of ends) {
    const { service } = setUp(text, { script: () => end })
    assert.deepEqual(read(await service(toolCall('tool', {}, { id: 7 }))), {
      id: 7,
      result: { content: [{ type: 'text', text: 'nothing found' }] },
      valueId: 7,
      partial: {
        source: 'fallback',
        reason: `a prepared answer, because test/tool failed: ${why}`,
        notice: true,
      },
    })
  }
})

test('a rejection that another answer stands in for is noted in the record', async () => {
  const { service } = setUp(text)
  const call = toolCall('tool')
  await service(call)
  assert.deepEqual(call.record.supersededRejections, ['breaker_open'])
})

test("long words of a server's error are cut", async () => {
  const { service } = setUp(text, { script: (call) => rpcError(call, 1, 'x'.repeat(10_000)) })
  const { partial } = read(await service(toolCall('tool')))
  assert.ok((partial?.reason.length ?? 0) < 300)
})

test('an error of a tool, and an error of the caller, count as answers', async () => {
  const call = toolCall('tool')
  const ends = [
    { ...answer(call, { isError: true }), verdict: 'tool_error' as const },
    rpcError(call, -32602, 'Invalid params'),
    failed('cancelled'),
    { kind: 'failed' as const, error: gatewayError(idempotencyConflict, 'scripted') },
    failed('invalid_arguments'),
    failed('session_lost'),
    failed('upstream_unauthorized'),
    failed('upstream_forbidden'),
  ]
  for (const end of ends) {
    const { service } = setUp(text, { script: () => end })
    assert.equal(await service(call), end)
  }
})

test('a call that its caller gave up is not degraded, whatever became of it', async () => {
  const signal = new Cancellation()
  signal.abort(gatewayError('cancelled', 'gave up'))
  const { service } = setUp(text)
  assert.equal(await service(toolCall('tool', {}, { signal })), rejected)
})

test('when the deadline is over, only what is at hand may answer', async () => {
  const signal = new Cancellation()
  signal.abort(gatewayError('deadline_exceeded', 'too late'))
  const { fallbackCall, calls } = otherTools({
    'test/other': (call) => Promise.resolve(answer(call)),
  })
  const end = failed('deadline_exceeded')
  const both = setUp({ ...text, fallback: { tool: 'other' } }, { script: () => end, scope: { fallbackCall } })
  assert.match(
    read(await both.service(toolCall('tool', {}, { signal }))).partial?.reason ?? '',
    /^a prepared answer/,
  )
  const one = setUp({ fallback: { tool: 'other' } }, { script: () => end, scope: { fallbackCall } })
  assert.equal(await one.service(toolCall('tool', {}, { signal })), end)
  assert.equal(calls.length, 0)
})

test('only tool calls are degraded, and of those none that runs as a task', async () => {
  const { service } = setUp(text)
  assert.equal(await service(newCall({ method: 'resources/read', params: { uri: 'x' } })), rejected)
  const params = { name: 'tool', task: {} }
  assert.equal(await service(newCall({ method: 'tools/call', params })), rejected)
})

test('a prepared answer may be structured; its text then says the same', async () => {
  const { service } = setUp({ static: { structuredContent: { rows: [] } }, notice: false })
  const { result, partial } = read(await service(toolCall('tool')))
  assert.deepEqual(result, {
    content: [{ type: 'text', text: '{"rows":[]}' }],
    structuredContent: { rows: [] },
  })
  assert.equal(partial?.notice, false)
  const both = setUp({ static: { text: 'none', structuredContent: {} } })
  assert.deepEqual(read(await both.service(toolCall('tool'))).result, {
    content: [{ type: 'text', text: 'none' }],
    structuredContent: {},
  })
})

test('the ways are tried in order: another tool, the last good answer, the prepared one', async () => {
  const other = { works: true }
  const { fallbackCall } = otherTools({
    'test/other': (call) => Promise.resolve(other.works ? answer(call, { from: 'other' }) : rejected),
  })
  const settings = { ...text, fallback: { tool: 'other' }, lastKnownGood: {} }
  const { service, play } = setUp(settings, { scope: { fallbackCall } })
  const ask = async () => read(await service(toolCall('tool'))).result
  assert.deepEqual(await ask(), { from: 'other' })
  other.works = false
  assert.deepEqual(await ask(), { content: [{ type: 'text', text: 'nothing found' }] })
  play.script = (call) => answer(call, { from: 'tool' })
  await ask()
  play.script = () => rejected
  assert.deepEqual(await ask(), { from: 'tool' })
})

test('degrading is off by default, and needs at least one way', () => {
  assert.equal(degrade.optIn, true)
  const refusals = [
    {},
    { notice: true },
    { static: {} },
    { fallback: {} },
    { fallback: { tool: '' } },
    { on: [] },
  ]
  for (const bad of refusals) {
    assert.equal(degrade.schema.safeParse(bad).success, false, JSON.stringify(bad))
  }
  assert.match(degrade.schema.safeParse({}).error?.message ?? '', /needs at least one of/)
  assert.deepEqual(degrade.schema.parse({ lastKnownGood: {} }), {
    lastKnownGood: { maxAge: 300_000, maxEntries: 100, maxSize: 1024 ** 2 },
    notice: true,
  })
})
