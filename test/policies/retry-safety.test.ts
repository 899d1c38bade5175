import assert from 'node:assert/strict'
import { test } from 'node:test'
import { toolCall } from '../support/caller.ts'
import { run } from './retry/run.ts'
import { answer, failed, rpcError } from './retry/scripted.ts'
import { retryRefused } from '../../src/policies/retry/tries.ts'

test('a write that may have run is not retried', async () => {
  for (const effect of ['write', 'unknown'] as const) {
    for (const outcome of [failed('attempt_timeout'), failed('upstream_rate_limited'), rpcError(-32603)]) {
      const { calls, record } = await run([outcome, answer], { effect })
      assert.equal(calls.length, 1)
      assert.equal(retryRefused.of(record), 'unsafe')
    }
  }
})

test('a write that never reached the server is retried', async () => {
  const outcome = failed('upstream_unavailable', { sent: false })
  assert.equal((await run([outcome, answer], { effect: 'write' })).calls.length, 2)
})

test('a write stops being retried as soon as a try of it may have run', async () => {
  const undelivered = failed('upstream_unavailable', { sent: false })
  const { calls, record } = await run([undelivered, failed('attempt_timeout'), answer], { effect: 'write' })
  assert.equal(calls.length, 2)
  assert.equal(retryRefused.of(record), 'unsafe')
})

test('an idempotent call is retried', async () => {
  const { calls } = await run([failed('attempt_timeout'), answer], { effect: 'idempotent' })
  assert.equal(calls.length, 2)
})

test('the error tells that the call may have run when any of its tries may have', async () => {
  const { outcome } = await run([failed('attempt_timeout'), failed('upstream_unavailable', { sent: false })])
  assert.equal(outcome.kind === 'failed' && outcome.error.reason, 'upstream_unavailable')
  assert.equal(outcome.kind === 'failed' && outcome.error.sent, true)
})

test('nothing is retried once a byte of it has reached the agent', async () => {
  const call = toolCall('tool')
  call.record.firstByteAt = 1
  const { calls, record } = await run([failed('bad_reply'), answer], { call })
  assert.equal(calls.length, 1)
  assert.equal(retryRefused.of(record), 'streaming')
})

test("somebody else's retry is not retried, and their first try is", async () => {
  for (const header of ['x-breakwater-attempt', 'x-envoy-attempt-count']) {
    const retried = await run([failed('bad_reply'), answer], {
      call: toolCall('tool', {}, { inbound: { [header]: '2' } }),
    })
    assert.equal(retried.calls.length, 1)
    assert.equal(retryRefused.of(retried.record), 'inbound_attempt')
    for (const first of ['1', 'two', '', '2.5']) {
      const call = toolCall('tool', {}, { inbound: { [header]: first } })
      assert.equal((await run([failed('bad_reply'), answer], { call })).calls.length, 2, first)
    }
  }
})
