import assert from 'node:assert/strict'
import { test } from 'node:test'
import { gatewayError, isGatewayError, reasons, stableCode } from '../../src/mesh/errors.ts'

test('an error says that nothing was sent unless told otherwise', () => {
  assert.deepEqual(gatewayError('overloaded', 'bulkhead full (8 of 8)'), {
    reason: 'overloaded',
    code: 1429,
    retryable: true,
    message: 'bulkhead full (8 of 8)',
    sent: false,
    retryAfterMs: undefined,
  })
  const { sent, retryAfterMs } = gatewayError('upstream_status', 'HTTP 503', { sent: true, retryAfterMs: 0 })
  assert.deepEqual([sent, retryAfterMs], [true, 0])
})

test('our errors differ from everything else that may be caught', () => {
  assert.ok(isGatewayError(gatewayError('internal', 'x')))
  for (const other of [undefined, null, 'overloaded', 7, {}, new Error('x'), new AbortController().signal]) {
    assert.equal(isGatewayError(other), false)
  }
  assert.equal(isGatewayError(new DOMException('x', 'AbortError')), false)
  assert.equal(isGatewayError({ reason: 'internal' }), false)
})

test('no code lies in the range that the protocol reserves', () => {
  for (const { code } of Object.values(reasons)) assert.ok(code >= 1_000 && code < 2_000, `${code}`)
})

test('a reason of a policy is reported like any other', () => {
  const closed = { name: 'shop_closed', code: 1503, retryable: true, about: 'It is Sunday.' }
  const { reason, code, retryable } = gatewayError(closed, 'closed')
  assert.deepEqual([reason, code, retryable], ['shop_closed', 1503, true])
  assert.equal(stableCode(reason), 'BW_SHOP_CLOSED')
})
