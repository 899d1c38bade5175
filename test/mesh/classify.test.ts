import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { Outcome } from '../../src/mesh/call.ts'
import {
  isFailure,
  attributionOf,
  resultOf,
  verdictOf,
  type Attribution,
  type Result,
} from '../../src/mesh/classify.ts'
import { gatewayError, reasons, type Reason } from '../../src/mesh/errors.ts'

/** A server's reply, judged. */
function answered(reply: Readonly<Record<string, unknown>>, status = 200): Outcome {
  const value = { jsonrpc: '2.0', id: 1, ...reply }
  return {
    kind: 'answered',
    result: { text: JSON.stringify(value), value, status },
    verdict: verdictOf(value),
  }
}

const failed = (reason: Reason): Outcome => ({ kind: 'failed', error: gatewayError(reason, 'x') })

test('a reply is judged by its own status', () => {
  assert.equal(verdictOf({ result: {} }), 'unchecked')
  assert.equal(verdictOf({ result: { isError: false } }), 'unchecked')
  assert.equal(verdictOf({ result: { isError: 'true' } }), 'unchecked')
  assert.equal(verdictOf({ result: { isError: true } }), 'tool_error')
  assert.equal(verdictOf({ error: { code: -32603, message: 'x' } }), 'rpc_error')
})

test('a result is returned, also one that tells of an error of the tool, and neither is a failure', () => {
  for (const result of [{}, { content: [] }, { isError: true, content: [] }]) {
    const outcome = answered({ result })
    assert.equal(resultOf(outcome), 'returned')
    assert.equal(isFailure(outcome), false)
  }
})

test('an error with which the server says that the caller was wrong is no failure', () => {
  for (const code of [-32700, -32600, -32601, -32602, -32002, -32020, -32021, -32022, -32042]) {
    const outcome = answered({ error: { code, message: 'x' } })
    assert.equal(resultOf(outcome), 'caller_error', `${code}`)
    assert.equal(isFailure(outcome), false, `${code}`)
  }
})

test('any other error of the server is a failure', () => {
  for (const error of [{ code: -32603 }, { code: -32000 }, { code: 1 }, { code: '-32602' }, {}]) {
    const outcome = answered({ error })
    assert.equal(resultOf(outcome), 'rpc_error', JSON.stringify(error))
    assert.equal(isFailure(outcome), true, JSON.stringify(error))
  }
})

test('a failed call is a timeout, a cancellation or a matter of the transport', () => {
  const special: Partial<Record<Reason, Result>> = {
    attempt_timeout: 'timeout',
    deadline_exceeded: 'timeout',
    cancelled: 'cancelled',
  }
  for (const reason of Object.keys(reasons) as Reason[]) {
    assert.equal(resultOf(failed(reason)), special[reason] ?? 'transport_error', reason)
  }
})

test('a failed call is a failure, for any reason', () => {
  for (const reason of Object.keys(reasons) as Reason[]) assert.equal(isFailure(failed(reason)), true, reason)
})

/** Returns the lesson about the server from the end of an attempt. */
function lesson(outcome: Outcome, { isInvalid = false, askedFor = false, ranMs = 60_000 } = {}): Attribution {
  if (outcome.kind === 'rejected') throw new TypeError('a rejection is no attempt')
  const deadline = { at: 0, reserveMs: undefined, askedFor }
  return attributionOf(outcome, { deadline, record: { isInvalid } }, ranMs)
}

const lessons: Partial<Record<Reason, Attribution>> = {
  upstream_refused: 'refused',
  upstream_unauthorized: 'refused',
  upstream_forbidden: 'refused',
  upstream_rate_limited: 'refused',
  session_lost: 'refused',
  overloaded: 'refused',
  incorrect_result: 'wrong',
  cancelled: 'nothing',
  internal: 'nothing',
  shutting_down: 'nothing',
}

test('a server is blamed for its own failures, not for those of callers and the gateway', () => {
  for (const reason of Object.keys(reasons) as Reason[])
    assert.equal(lesson(failed(reason)), lessons[reason] ?? 'failure', reason)
  const down = gatewayError('upstream_unavailable', 'the program does not start')
  assert.equal(lesson({ kind: 'failed', error: { ...down, notStarted: true } }), 'nothing')
  assert.equal(lesson(answered({ result: { isError: true } })), 'good')
  assert.equal(lesson(answered({ error: { code: -32603 } })), 'failure')
  assert.equal(lesson(answered({ error: { code: -32602 } })), 'caller_error')
})

test('an error that came with HTTP 4xx is its caller’s, but for 408 and 429', () => {
  for (const status of [400, 401, 403, 404, 409, 413, 422, 499]) {
    const outcome = answered({ error: { code: -32000, message: 'x' } }, status)
    assert.deepEqual([resultOf(outcome), lesson(outcome)], ['caller_error', 'refused'], `${status}`)
    assert.equal(isFailure(outcome), true, 'the next try may succeed')
  }
  for (const status of [200, 408, 429, 500, 503]) {
    const outcome = answered({ error: { code: -32000, message: 'x' } }, status)
    assert.deepEqual([resultOf(outcome), lesson(outcome)], ['rpc_error', 'failure'], `${status}`)
    assert.equal(isFailure(outcome), true, `${status}`)
  }
})

test('any failure after arguments that break the schema is caused by the caller, except for a lost connection', () => {
  const wrong = { ...answered({ result: {} }), verdict: 'schema_invalid' } as Outcome
  for (const outcome of [
    wrong,
    answered({ error: { code: -32603 } }),
    failed('upstream_status'),
    failed('attempt_timeout'),
    failed('bad_reply'),
    failed('deadline_exceeded'),
  ])
    assert.equal(lesson(outcome, { isInvalid: true }), 'caller_error')
  for (const reason of ['upstream_unavailable', 'upstream_disconnected'] as const)
    assert.equal(lesson(failed(reason), { isInvalid: true }), 'failure')
  assert.equal(lesson(answered({ result: {} }), { isInvalid: true }), 'good')
})

test('a deadline set by the caller shows an impatient caller, after any wait', () => {
  for (const ranMs of [1, 1_000, 60_000])
    assert.equal(lesson(failed('deadline_exceeded'), { askedFor: true, ranMs }), 'caller_timeout')
  assert.equal(lesson(failed('attempt_timeout'), { askedFor: true }), 'failure')
})

test('a deadline of the operator’s blames a server that had a second or more', () => {
  assert.equal(lesson(failed('deadline_exceeded'), { ranMs: 999 }), 'nothing')
  assert.equal(lesson(failed('deadline_exceeded'), { ranMs: 1_000 }), 'failure')
})

test('a rejected call never reached the server, so the server did not fail', () => {
  const outcome: Outcome = { kind: 'rejected', error: gatewayError('overloaded', 'x'), by: 'bulkhead' }
  assert.equal(resultOf(outcome), 'rejected')
  assert.equal(isFailure(outcome), false)
})
