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

const hanging = ({ signal }: Call) =>
  new Promise<Outcome>((resolve) =>
    signal.addEventListener('abort', () => resolve({ kind: 'failed', error: signal.reason as never })),
  )

test('a hanging tool leaves a quarter of the time to its fallback, at any progress', async () => {
  const { fallbackCall, calls } = otherTools({ 'spare/query': answers({ from: 'spare' }) })
  const message = { method: 'notifications/progress', params: { progressToken: 1, progress: 1 } }
  const script = (call: Call) => {
    void call.channel.send({ text: JSON.stringify(message), value: { jsonrpc: '2.0', ...message } })
    return hanging(call)
  }
  const { clock, service } = setUp(
    { fallback: { tool: 'query', server: 'spare' } },
    { script, scope: { fallbackCall } },
  )
  for (const [latest, endsAt] of [
    [undefined, 6_000],
    [16_000, 12_000],
  ] as const) {
    const begunAt = clock.now()
    const deadline = {
      at: begunAt + 8_000,
      reserveMs: undefined,
      ...(latest && { latest: begunAt + latest }),
    }
    const params = { name: 'query', arguments: {}, _meta: { progressToken: 1 } }
    const told = service(newCall({ method: 'tools/call', params, deadline }))
    // Progress extends the time, up to three quarters of the latest deadline.
    await clock.advance(Math.min(endsAt, 6_000) - 1)
    assert.equal(calls.length, 0)
    await clock.advance(endsAt)
    assert.deepEqual(read(await told).result, { from: 'spare' })
    assert.equal(calls.pop()?.deadline?.at, deadline.at)
  }
})

test('a tool has all of the time where no fallback can be asked', async () => {
  const { fallbackCall } = otherTools({ 'test/backup': answers({}) })
  const settings = { fallback: { tool: 'backup' } }
  const { clock, service: absent } = setUp(settings, {
    script: hanging,
    scope: { fallbackCall, isOffered: () => false },
  })
  const deadline = { at: 8_000, reserveMs: undefined }
  const signal = new Cancellation()
  const told = absent(toolCall('query', {}, { deadline, signal }))
  await clock.advance(7_999)
  signal.abort(gatewayError('deadline_exceeded', 'the deadline of 8s'))
  const outcome = await told
  assert.ok(outcome.kind === 'failed')
  assert.equal(outcome.error.message, 'the deadline of 8s')
})

test('a call waits for its tool as long as any, unless it has another answer', async () => {
  const seen: unknown[] = []
  const note = ({ record }: Call) =>
    seen.push([record.hasAlternative?.('tool') ?? false, record.hasAlternative?.('server') ?? false])
  const { fallbackCall } = otherTools({
    'test/backup': (call) => (note(call), Promise.resolve(failed('upstream_unavailable'))),
    'spare/backup': (call) => (note(call), Promise.resolve(failed('upstream_unavailable'))),
  })
  const script = (call: Call) => (note(call), failed('upstream_unavailable'))
  const told = async (settings: object, scope: object = {}) => {
    seen.length = 0
    const call = toolCall('query')
    await setUp(settings, { script, scope: { fallbackCall, ...scope } }).service(call)
    assert.equal(call.record.hasAlternative, undefined)
    return [...seen]
  }
  // First at the tool, then at its fallback, which has no fallback.
  assert.deepEqual(await told({ fallback: { tool: 'backup' } }), [
    [true, false],
    [false, false],
  ])
  assert.deepEqual(await told({ fallback: { tool: 'backup', server: 'spare' } }), [
    [true, true],
    [false, false],
  ])
  const absent = { isOffered: () => false }
  assert.deepEqual((await told({ fallback: { tool: 'backup', server: 'gone' } }, absent))[0], [false, false])
  assert.deepEqual(await told({ lastKnownGood: {} }), [[false, false]])
  assert.deepEqual(await told({ static: { text: 'sorry' } }), [[true, true]])
})

test('an answer in place of a call that may have run carries a warning, unless a second run is harmless', async () => {
  const { fallbackCall } = otherTools({ 'test/backup': answers({}) })
  const cases = [
    ['write', 1, 'too slow (the call may have run)'],
    ['read_only', 1, 'too slow'],
    // An earlier tool of the chain was sent; this tool was not.
    ['write', 0, 'too slow'],
  ] as const
  for (const [effect, attempts, words] of cases) {
    const script = ({ record }: Call) => {
      record.attempts += attempts
      return failed('attempt_timeout', 'too slow')
    }
    const scope = { fallbackCall, effectOf: () => effect }
    const { service } = setUp({ fallback: { tool: 'backup' } }, { script, scope })
    const { partial } = read(await service(toolCall('query')))
    assert.equal(partial?.reason, `answered by backup because test/query failed: ${words}`)
  }
})

test('a tool of another server is named with its server', async () => {
  const { fallbackCall } = otherTools({ 'spare/query': answers({}) })
  const { service } = setUp({ fallback: { tool: 'query', server: 'spare' } }, { scope: { fallbackCall } })
  const { partial } = read(await service(toolCall('query')))
  assert.equal(partial?.reason, 'answered by spare/query because test/query failed: breaker open')
})

test('a call goes to the same server under a new id, and to another server under its own id', async () => {
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

test('a bad answer of a fallback is not given: the first failure stands', async () => {
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

test('a fallback may have a fallback, and both are reported; no chain returns to a failed tool', async () => {
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
    'answered by c because test/b failed: too slow, and test/a failed: breaker open',
  )
  calls.length = 0
  tools['test/c'] = over('b', () => rejected)
  const call = toolCall('a')
  for (let round = 1; round <= 2; round++) {
    assert.equal(await chained(call), rejected)
    assert.equal(calls.length, 2 * round)
  }
})
