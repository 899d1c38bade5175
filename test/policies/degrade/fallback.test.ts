import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { Call, Outcome, Service } from '../../../src/mesh/call.ts'
import { Cancellation } from '../../../src/mesh/cancel.ts'
import { gatewayError } from '../../../src/mesh/errors.ts'
import { newCall, toolCall } from '../../support/caller.ts'
import { answer, failed, otherTools, read, rejected, rpcError, setUp } from './degraded.ts'

const answers = (result: object): Service => {
  return (call) => Promise.resolve(answer(call, result))
}

test("another tool answers with its own verdict, under the caller's id", async () => {
  const { fallbackCall, calls } = otherTools({
    'test/backup': (call) => Promise.resolve({ ...answer(call, { x: 1 }), verdict: 'correct' } as Outcome),
  })
  const { service } = setUp({ fallback: { tool: 'backup' } }, { scope: { fallbackCall } })
  const outcome = await service(toolCall('query', { q: 'x' }, { id: 'mine' }))
  assert.deepEqual(read(outcome), {
    id: 'mine',
    result: { x: 1 },
    valueId: 'mine',
    partial: {
      source: 'fallback',
      reason: 'answered by backup because test/query failed: breaker open',
      notice: true,
    },
  })
  assert.ok(outcome.kind === 'answered' && outcome.verdict === 'correct')
  assert.equal(calls[0]?.tool, 'backup')
})

test('a tool that hangs leaves a quarter of the time to its fallback', async () => {
  const { fallbackCall, calls } = otherTools({ 'spare/query': answers({ from: 'spare' }) })
  const deadline = { at: 8_000, reserveMs: undefined }
  const script = ({ signal }: Call) =>
    new Promise<Outcome>((resolve) =>
      signal.addEventListener('abort', () => resolve({ kind: 'failed', error: signal.reason as never })),
    )
  const { clock, service } = setUp(
    { fallback: { tool: 'query', server: 'spare' } },
    { script, scope: { fallbackCall } },
  )
  const told = service(toolCall('query', {}, { deadline }))
  await clock.advance(5_999)
  assert.equal(calls.length, 0)
  await clock.advance(1)
  assert.deepEqual(read(await told).result, { from: 'spare' })
  assert.equal(calls[0]?.deadline?.at, 8_000)
})

test('a tool of another server is named with its server', async () => {
  const { fallbackCall } = otherTools({ 'spare/query': answers({}) })
  const { service } = setUp({ fallback: { tool: 'query', server: 'spare' } }, { scope: { fallbackCall } })
  const { partial } = read(await service(toolCall('query')))
  assert.equal(partial?.reason, 'answered by spare/query because test/query failed: breaker open')
})

test('a call goes to the same server under another id than before, and to another one as it is', async () => {
  const { fallbackCall, calls } = otherTools({ 'test/a': answers({}), 'spare/a': answers({}) })
  for (const server of ['test', 'spare']) {
    const { service } = setUp({ fallback: { tool: 'a', server } }, { scope: { fallbackCall } })
    await service(toolCall('tool'))
  }
  assert.deepEqual(
    calls.map(({ attempt }) => attempt),
    [2, 1],
  )
})

test('what is no good answer either is not given: the first failure stands', async () => {
  const call = toolCall('tool')
  const end = failed('attempt_timeout')
  const bad: Outcome[] = [
    rejected,
    failed('upstream_disconnected'),
    rpcError(call, -32602, 'Invalid params'),
    { ...answer(call, { isError: true }), verdict: 'tool_error' } as Outcome,
    answer(call, { resultType: 'input_required' }),
  ]
  for (const outcome of bad) {
    const { fallbackCall, calls } = otherTools({ 'test/backup': () => Promise.resolve(outcome) })
    const { service } = setUp(
      { fallback: { tool: 'backup' } },
      { script: () => end, scope: { fallbackCall } },
    )
    assert.equal(await service(call), end)
    assert.equal(calls.length, 1)
  }
})

test('when the other tool is rejected as well, both rejections are noted in the record', async () => {
  const { fallbackCall } = otherTools({ 'test/backup': () => Promise.resolve(rejected) })
  const settings = { fallback: { tool: 'backup' }, static: { text: 'sorry' } }
  const { service } = setUp(settings, { scope: { fallbackCall } })
  const call = toolCall('tool')
  await service(call)
  assert.deepEqual(call.record.supersededRejections, ['breaker_open', 'breaker_open'])
})

test('where there is no such server or tool, the first failure stands', async () => {
  const { service } = setUp({ fallback: { tool: 'backup', server: 'gone' } })
  assert.equal(await service(toolCall('tool')), rejected)
})

test('a call that goes on where its server left off means nothing to another tool', async () => {
  const { fallbackCall, calls } = otherTools({ 'test/backup': answers({}) })
  const { service } = setUp({ fallback: { tool: 'backup' } }, { scope: { fallbackCall } })
  const params = { name: 'tool', requestState: 'opaque', inputResponses: {} }
  assert.equal(await service(newCall({ method: 'tools/call', params })), rejected)
  assert.equal(calls.length, 0)
})

test('a caller that goes while another tool is asked gets nothing of it', async () => {
  const signal = new Cancellation()
  const { fallbackCall } = otherTools({
    'test/backup': () => {
      signal.abort(gatewayError('cancelled', 'gave up'))
      return Promise.resolve(failed('cancelled'))
    },
  })
  const settings = { fallback: { tool: 'backup' }, static: { text: 'x' } }
  const { service } = setUp(settings, { scope: { fallbackCall } })
  assert.equal(await service(toolCall('tool', {}, { signal })), rejected)
})

test('a fallback may have one of its own, and both are told; none goes back to a tool that has failed', async () => {
  const tools: Record<string, Service> = {}
  const { fallbackCall, calls } = otherTools(tools)
  const over = (tool: string, script: (call: Call) => Outcome) =>
    setUp({ fallback: { tool } }, { script, scope: { fallbackCall } }).service
  tools['test/b'] = over('c', () => failed('attempt_timeout', 'too slow'))
  tools['test/c'] = answers({ from: 'c' })
  const chained = over('b', () => rejected)
  const { result, partial } = read(await chained(toolCall('a')))
  assert.deepEqual(result, { from: 'c' })
  assert.equal(
    partial?.reason,
    'answered by b because test/a failed: breaker open; and answered by c because test/b failed: too slow',
  )
  calls.length = 0
  tools['test/c'] = over('b', () => rejected)
  const call = toolCall('a')
  for (let round = 1; round <= 2; round++) {
    assert.equal(await chained(call), rejected)
    assert.equal(calls.length, 2 * round)
  }
})
