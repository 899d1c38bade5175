import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { Outcome } from '../../src/mesh/call.ts'
import { verdictOf } from '../../src/mesh/classify.ts'
import { withLegacyError } from '../../src/upstreams/modern/modern-session.ts'

function answered(text: string): Extract<Outcome, { kind: 'answered' }> {
  const value = JSON.parse(text) as Record<string, unknown>
  return { kind: 'answered', result: { text, value, status: 200 }, verdict: verdictOf(value) }
}

function textOf(outcome: Outcome): string {
  return outcome.kind === 'answered' ? outcome.result.text : ''
}

test('a resource that is not there has its legacy code for a legacy client', () => {
  const text =
    '{"jsonrpc":"2.0","id":1,"error":{"code":-32602, "message":"not there","data":{"uri":"a://b"}}}'
  assert.equal(textOf(withLegacyError(answered(text))), text.replace('-32602', '-32002'))
})

test('invalid params of another kind stay what they are', () => {
  const text = '{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"Invalid params"}}'
  assert.equal(textOf(withLegacyError(answered(text))), text)
})
