import assert from 'node:assert/strict'
import { test } from 'node:test'
import { resultIn } from '../../../src/chaos/fault.ts'
import { resultFaults } from '../../../src/chaos/faults/result.ts'
import type { Outcome, Service } from '../../../src/mesh/call.ts'
import { gatewayError } from '../../../src/mesh/errors.ts'
import { errorText } from '../../../src/protocol/jsonrpc.ts'
import { toolCall } from '../../support/caller.ts'
import {
  answering,
  answerOf,
  faultLayer,
  testInjection,
  type TestInjectionParts,
} from '../../support/injection.ts'

const good = { content: [{ type: 'text', text: '{"n":1}' }], structuredContent: { n: 1 }, _meta: { a: 1 } }
const failing: Service = () =>
  Promise.resolve({ kind: 'failed', error: gatewayError('upstream_disconnected', 'gone') })
const rpcError: Service = (call) => Promise.resolve(answerOf(errorText(call.id, -32603, 'broken'), 200))
const toolError = answering({ content: [{ type: 'text', text: 'disk full' }], isError: true })

/** Fires once, at a call that a server answers. */
async function fire(
  type: keyof typeof resultFaults,
  config: object,
  server: Service = answering(good),
  parts: TestInjectionParts = {},
) {
  const injection = testInjection(parts)
  const outcome = await faultLayer(resultFaults[type], config, injection)(server)(toolCall('tool'))
  return { injection, outcome, result: resultIn(outcome) }
}

const verdictOf = (outcome: Outcome) => (outcome.kind === 'answered' ? outcome.verdict : outcome.error.reason)

test('is_error turns a reply into an error of the tool, and keeps what the reply says of itself', async () => {
  const { injection, outcome, result } = await fire('result.is_error', { text: 'quota exceeded' })
  assert.deepEqual(result, {
    content: [{ type: 'text', text: 'quota exceeded' }],
    _meta: { a: 1 },
    isError: true,
  })
  assert.equal(verdictOf(outcome), 'tool_error')
  assert.deepEqual(injection.notes, [{ text: 'quota exceeded' }])
})

test('error_as_success hides an error, of whatever kind, behind a success', async () => {
  for (const [server, was] of [
    [toolError, 'tool_error'],
    [rpcError, 'rpc_error'],
    [failing, 'upstream_disconnected'],
  ] as const) {
    const { injection, outcome, result } = await fire('result.error_as_success', {}, server)
    assert.deepEqual(result, { content: [{ type: 'text', text: 'OK' }] })
    assert.equal(verdictOf(outcome), 'unchecked')
    assert.ok(injection.isChanged(outcome))
    assert.deepEqual(injection.notes, [{ was }])
  }
})

test('a success in place of a failure has all members of a modern result', async () => {
  const faultEnvironment = { kindOf: () => ({ transport: 'http', era: 'modern' }) as const }
  const { result } = await fire('result.error_as_success', { text: 'done' }, failing, { faultEnvironment })
  assert.deepEqual(result, { resultType: 'complete', content: [{ type: 'text', text: 'done' }] })
})

test('error_as_success leaves good replies alone unless configured otherwise', async () => {
  const alone = await fire('result.error_as_success', {})
  assert.deepEqual(alone.result, good)
  assert.deepEqual(alone.injection.inapplicable, ['the reply is no error'])
  const taken = await fire('result.error_as_success', { of: 'every_reply', text: 'Error: 500' })
  assert.deepEqual(taken.result, { content: [{ type: 'text', text: 'Error: 500' }], _meta: { a: 1 } })
})

test('empty leaves no content, or one empty text', async () => {
  const { result } = await fire('result.empty', {})
  assert.deepEqual(result, { content: [], structuredContent: {}, _meta: { a: 1 } })
  const text = await fire(
    'result.empty',
    { form: 'empty_text' },
    answering({ content: [{ type: 'text', text: 'a' }] }),
  )
  assert.deepEqual(text.result, { content: [{ type: 'text', text: '' }] })
})

test('oversize grows a reply by its size, and the gateway reads the reply like any other', async () => {
  const { injection, result } = await fire('result.oversize', { bytes: '64KiB' })
  const [first, filler] = result?.content as { text: string }[]
  assert.deepEqual(first, good.content[0])
  assert.equal(filler?.text.length, 65_536)
  assert.equal(injection.replies.length, 1)
  assert.deepEqual(injection.notes, [{ bytes: 65_536 }])
})

test('the outcome of an oversized reply is the outcome of reading the reply', async () => {
  const error = gatewayError('reply_too_large', 'too large')
  const { outcome } = await fire('result.oversize', {}, answering(good), {
    faultEnvironment: { read: () => ({ kind: 'failed', error }) },
  })
  assert.equal(verdictOf(outcome), 'reply_too_large')
})

test('an oversized reply above all policies reaches the agent unchanged', async () => {
  const { injection, result } = await fire('result.oversize', { bytes: 2048 }, answering(good), {
    side: 'client',
  })
  assert.equal((result?.content as unknown[]).length, 2)
  assert.equal(injection.replies.length, 0)
})

test('replies other than tool results pass unharmed, and the journal says so', async () => {
  const task = answering({ task: { taskId: '1' } })
  const question = answering({ resultType: 'input_required', content: [] })
  for (const type of Object.keys(resultFaults) as (keyof typeof resultFaults)[]) {
    for (const server of type === 'result.error_as_success'
      ? [task, question]
      : [task, question, rpcError, failing]) {
      const call = toolCall('tool')
      const injection = testInjection()
      const expected = await server(call)
      const layer = faultLayer(resultFaults[type], {}, injection)
      const outcome = await layer(() => Promise.resolve(expected))(call)
      assert.equal(outcome, expected, type)
      assert.deepEqual(
        [injection.inapplicable.length, injection.notes.length, injection.replies.length],
        [1, 0, 0],
        type,
      )
    }
  }
})

test('clock_skew moves all points in time alike, as exact as they were, and leaves days alone', async () => {
  const times = (at: string) => ({ at, day: '2026-01-31', id: '42' })
  const server = answering({
    content: [{ type: 'text', text: 'At 2026-01-31T23:30:00+02:00.' }],
    structuredContent: times('2026-01-31T23:30:00.5Z'),
  })
  const { result } = await fire('result.clock_skew', { by: '1h' }, server)
  assert.deepEqual(result, {
    content: [{ type: 'text', text: 'At 2026-02-01T00:30:00+02:00.' }],
    structuredContent: times('2026-02-01T00:30:00.5Z'),
  })
})
