import assert from 'node:assert/strict'
import { test } from 'node:test'
import { gatewayError, isGatewayError, reasons } from '../../src/mesh/errors.ts'

test('an error says that nothing was sent unless told otherwise', () => {
  assert.deepEqual(gatewayError('overloaded', 'bulkhead full (8 of 8)'), {
    reason: 'overloaded',
    message: 'bulkhead full (8 of 8)',
    sent: false,
    retryAfterMs: undefined,
  })
  const { sent, retryAfterMs } = gatewayError('upstream_status', 'HTTP 503', { sent: true, retryAfterMs: 0 })
  assert.deepEqual([sent, retryAfterMs], [true, 0])
})

test('our errors are told from everything else that may be caught', () => {
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

test('every reason has a stable code of its own, which is its name', () => {
  for (const [reason, { stable }] of Object.entries(reasons))
    assert.equal(stable, `BW_${reason.toUpperCase()}`)
})
