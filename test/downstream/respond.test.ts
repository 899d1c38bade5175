import assert from 'node:assert/strict'
import { test } from 'node:test'
import { gatewayErrorText, respond } from '../../src/downstream/respond.ts'
import { newRecord, type Outcome } from '../../src/mesh/call.ts'
import { gatewayError, reasons, type Reason } from '../../src/mesh/errors.ts'

/** The error of a response. */
const errorOf = (text: string) =>
  (JSON.parse(text) as { error: { code: number; message: string; data: Record<string, unknown> } }).error

test('a reply of the server passes as it came, status included', () => {
  const result = { text: '{"x":1.0}', value: {}, status: 404 }
  const outcome: Outcome = { kind: 'answered', result, verdict: 'rpc_error' }
  assert.equal(respond(1, outcome, {}), result)
})

test('an error of ours tells what happened, where, whether it may have run, and when to try again', () => {
  const record = { ...newRecord(0), attempts: 3 }
  const error = gatewayError('upstream_rate_limited', 'too fast', { sent: true, retryAfterMs: 1_000.2 })
  const { text, status } = respond('id', { kind: 'failed', error }, { server: 's', tool: 't', record })
  assert.equal(status, 200)
  assert.deepEqual(JSON.parse(text), {
    jsonrpc: '2.0',
    id: 'id',
    error: {
      code: 1429,
      message: 's/t: too fast',
      data: {
        code: 'BW_UPSTREAM_RATE_LIMITED',
        reason: 'upstream_rate_limited',
        server: 's',
        tool: 't',
        retryable: true,
        retryAfterMs: 1_001,
        attempts: 3,
        sent: true,
      },
    },
  })
})

test('what is not known is left out', () => {
  const error = errorOf(gatewayErrorText(null, gatewayError('overloaded', 'full'), {}))
  assert.equal(error.message, 'full')
  assert.deepEqual(error.data, {
    code: 'BW_OVERLOADED',
    reason: 'overloaded',
    retryable: true,
    attempts: 0,
    sent: false,
  })
  assert.equal(
    errorOf(gatewayErrorText(1, gatewayError('overloaded', 'full'), { server: 's' })).message,
    's: full',
  )
})

test('a rejected call reads like a failed one', () => {
  const error = gatewayError('overloaded', 'bulkhead full (8 of 8)')
  const rejected = respond(1, { kind: 'rejected', error, by: 'bulkhead' }, {})
  assert.deepEqual(rejected, respond(1, { kind: 'failed', error }, {}))
})

test('only a session that is lost for good is an HTTP error', () => {
  for (const reason of Object.keys(reasons) as Reason[]) {
    const { status, text } = respond(1, { kind: 'failed', error: gatewayError(reason, 'x') }, {})
    assert.equal(status, reason === 'session_lost' ? 404 : 200, reason)
    assert.equal(errorOf(text).code, reasons[reason].code)
  }
})
