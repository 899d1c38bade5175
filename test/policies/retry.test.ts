import assert from 'node:assert/strict'
import { test } from 'node:test'
import { gatewayError } from '../../src/mesh/errors.ts'
import type { Outcome } from '../../src/mesh/call.ts'
import { retry } from '../../src/policies/retry.ts'
import { toolCall } from '../support/caller.ts'
import { testPolicyContext, testScope } from '../support/policy-context.ts'
import { ManualClock } from '../support/manual-clock.ts'
import { run } from './retry/run.ts'
import { answer, failed, pass, rejected, rpcError, scripted } from './retry/scripted.ts'
import { hedges, retries, retryRefused } from '../../src/policies/retry/tries.ts'

test('a call that succeeds is sent once', async () => {
  const { outcome, calls, record } = await run([answer])
  assert.equal(outcome, answer)
  assert.equal(calls.length, 1)
  assert.equal(retries.of(record), 0)
  assert.equal(retryRefused.of(record), undefined)
})

test('a call that fails is sent again until it succeeds', async () => {
  const { outcome, calls, record } = await run([failed('upstream_disconnected'), failed('bad_reply'), answer])
  assert.equal(outcome, answer)
  assert.equal(calls.length, 3)
  assert.equal(retries.of(record), 2)
  assert.equal(retryRefused.of(record), undefined)
})

test('after four retries the last failure is reported', async () => {
  const last = failed('attempt_timeout')
  const others = Array.from({ length: 4 }, () => failed('bad_reply'))
  const { outcome, calls, record } = await run([...others, last])
  assert.equal(outcome, last)
  assert.equal(calls.length, 5)
  assert.equal(retryRefused.of(record), 'max_retries')
})

test('every failure that may pass is retried, and no other', async () => {
  const passing = [
    'attempt_timeout',
    'upstream_unavailable',
    'upstream_status',
    'upstream_rate_limited',
  ] as const
  for (const reason of passing) assert.equal((await run([failed(reason), answer])).calls.length, 2, reason)
  const final = ['cancelled', 'deadline_exceeded', 'upstream_unauthorized', 'reply_too_large'] as const
  for (const reason of final) assert.equal((await run([failed(reason), answer])).calls.length, 1, reason)
})

test('no retry waits for a program that is not up', async () => {
  const error = gatewayError('upstream_unavailable', 'the program does not start')
  const down = { kind: 'failed', error: { ...error, notStarted: true, retryAfterMs: 1 } } as const
  assert.equal((await run([down, answer])).calls.length, 1)
})

test('an error of the server is retried, one of the caller is not', async () => {
  assert.equal((await run([rpcError(-32603), answer])).calls.length, 2)
  assert.equal((await run([rpcError(-32602), answer])).calls.length, 1)
})

test('rejections by our own limits are not retried', async () => {
  assert.equal((await run([rejected, answer])).calls.length, 1)
})

test('when our own limits reject a retry, the failure before is reported', async () => {
  const first = failed('bad_reply')
  const { outcome, record } = await run([first, rejected])
  assert.equal(outcome, first)
  assert.equal(retries.of(record), 0)
  assert.deepEqual([record.supersededRejections, retryRefused.of(record)], [['bulkhead_full'], 'limited'])
})

test('an error of a tool, and a question to the agent, are answers', async () => {
  const toolError: Outcome = { ...answer, verdict: 'tool_error' }
  assert.equal((await run([toolError])).calls.length, 1)
  const result = { text: '{}', value: { result: { resultType: 'input_required' } }, status: 200 }
  const question: Outcome = { kind: 'answered', result, verdict: 'schema_invalid' }
  assert.equal((await run([question], { config: { incorrect: true } })).calls.length, 1)
})

test('a wrong answer is asked for again only where the config says so', async () => {
  const wrong: Outcome = { ...answer, verdict: 'schema_invalid' }
  assert.equal((await run([wrong, answer])).outcome, wrong)
  assert.equal((await run([wrong, answer], { config: { incorrect: true } })).outcome, answer)
})

test('a wrong answer is asked for again twice, without a proof that the tool works', async () => {
  const wrong: Outcome = { ...answer, verdict: 'schema_invalid' }
  const error = gatewayError('incorrect_result', 'it is wrong', { sent: true })
  const held: Outcome = { kind: 'failed', error, verdict: 'schema_invalid' }
  for (const [outcome, config] of [
    [wrong, { incorrect: true }],
    [held, {}],
  ] as const) {
    const { calls, record } = await run([outcome, outcome, outcome, answer], { config })
    assert.equal(calls.length, 3)
    assert.equal(retryRefused.of(record), 'max_retries')
    assert.ok(record.waitedMs <= 500, `${record.waitedMs}`)
  }
})

test('a wrong answer is returned when a second request brings no answer', async () => {
  const wrong: Outcome = { ...answer, verdict: 'json_invalid' }
  for (const worse of [failed('bad_reply'), rpcError(-32603), rejected])
    assert.equal((await run([wrong, worse], { config: { incorrect: true } })).outcome, wrong)
})

test('every try has its number, and servers behind HTTP get the number from the second try on', async () => {
  const call = { ...toolCall('tool'), headers: { 'x-team': 'blue' } }
  const { calls } = await run([failed('bad_reply'), failed('bad_reply'), answer], { call })
  assert.deepEqual(
    calls.map(({ attempt }) => attempt),
    [1, 2, 3],
  )
  assert.deepEqual(
    calls.map(({ headers }) => headers),
    [
      { 'x-team': 'blue' },
      { 'x-team': 'blue', 'x-breakwater-attempt': '2' },
      { 'x-team': 'blue', 'x-breakwater-attempt': '3' },
    ],
  )
  const plain = await run([failed('bad_reply'), answer])
  assert.deepEqual(plain.calls[1]?.headers, { 'x-breakwater-attempt': '2' })
})

test('a retry never has the number of a hedge', async () => {
  const call = toolCall('tool')
  const clock = new ManualClock()
  const { service, calls } = scripted(failed('bad_reply'), answer)
  const layer = retry.build(retry.schema.parse({}), testPolicyContext(clock), testScope())
  const hedging = layer((tried) => {
    if (tried.attempt === 1) hedges.add(tried.record)
    return service(tried)
  })
  void hedging(call)
  await pass(clock, 1_000)
  assert.deepEqual(
    calls.map(({ attempt }) => attempt),
    [1, 3],
  )
})

test('no retries are sent where the config allows none', async () => {
  const { calls, record } = await run([failed('bad_reply')], { config: { maxRetries: 0 } })
  assert.equal(calls.length, 1)
  assert.equal(retryRefused.of(record), 'max_retries')
})

test('the defaults are four retries with waits from 100 ms to 10 s', () => {
  assert.deepEqual(retry.schema.parse({}), {
    maxRetries: 4,
    base: 100,
    cap: 10_000,
    budget: {
      ratio: 0.5,
      costlyRatio: 0.2,
      floor: 10,
      window: 10_000,
      concurrency: 0.5,
      leastConcurrent: 16,
    },
    waitForProof: true,
    incorrect: false,
  })
})

test('a call lost after its sending is sent at most three times, and an unsent call five times', async () => {
  for (const [sent, tries] of [
    [true, 3],
    [false, 5],
  ] as const) {
    const { calls, record } = await run([failed('upstream_disconnected', { sent })])
    assert.equal(calls.length, tries)
    assert.equal(retryRefused.of(record), 'max_retries')
  }
})

test('tries that never left do not count among the three', async () => {
  const unsent = failed('upstream_unavailable', { sent: false })
  const lost = failed('upstream_disconnected')
  for (const outcomes of [
    [unsent, unsent, lost, lost, answer],
    [lost, unsent, unsent, lost, answer],
  ]) {
    const { outcome, calls } = await run(outcomes)
    assert.deepEqual([calls.length, outcome], [5, answer])
  }
})

test('settings that contradict each other or are out of range are refused, by name', () => {
  const refused = retry.schema.safeParse({ base: '3s', cap: '2s' })
  assert.deepEqual(refused.error?.issues[0]?.path, ['base'])
  for (const config of [
    { maxRetries: 11 },
    { budget: { ratio: 1.1 } },
    { budget: { window: '2m' } },
    { tries: 1 },
  ])
    assert.equal(retry.schema.safeParse(config).success, false)
})
