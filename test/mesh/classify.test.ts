import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { Outcome } from '../../src/mesh/call.ts'
import { isFailure, resultOf, verdictOf, type Result } from '../../src/mesh/classify.ts'
import { gatewayError, reasons, type Reason } from '../../src/mesh/errors.ts'

/** A server's reply, judged. */
function answered(reply: Readonly<Record<string, unknown>>): Outcome {
  const value = { jsonrpc: '2.0', id: 1, ...reply }
  return {
    kind: 'answered',
    result: { text: JSON.stringify(value), value, status: 200 },
    verdict: verdictOf(value),
  }
}

const failed = (reason: Reason): Outcome => ({ kind: 'failed', error: gatewayError(reason, 'x') })

test('a reply is judged by what it says of itself', () => {
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

test('a server is blamed for what it did, not for what callers and the gateway did', () => {
  for (const reason of [
    'attempt_timeout',
    'upstream_disconnected',
    'upstream_unavailable',
    'bad_reply',
  ] as const) {
    assert.equal(isFailure(failed(reason)), true, reason)
  }
  for (const reason of ['cancelled', 'upstream_rate_limited', 'shutting_down', 'internal'] as const) {
    assert.equal(isFailure(failed(reason)), false, reason)
  }
})

test('a call that was rejected never reached the server, so it is no failure of it', () => {
  const outcome: Outcome = { kind: 'rejected', error: gatewayError('overloaded', 'x'), by: 'bulkhead' }
  assert.equal(resultOf(outcome), 'rejected')
  assert.equal(isFailure(outcome), false)
})
