import assert from 'node:assert/strict'
import { test } from 'node:test'
import { initializeBytes, MAX_CLIENT_INFO_VALUES, tooMuchToSay } from '../../src/downstream/initialize.ts'

const fault = (params: unknown) => tooMuchToSay(JSON.stringify({ params }), [params], ['params'])

test("a client's description may have at most 256 members and elements, however short its text", () => {
  const empty = (count: number) => Array.from({ length: count }, () => ({}))
  assert.equal(fault({ a: empty(MAX_CLIENT_INFO_VALUES - 1) }), undefined)
  const why = 'Invalid params: params have too many members and elements (at most 256)'
  assert.equal(fault({ a: empty(MAX_CLIENT_INFO_VALUES) }), why)
  assert.equal(fault({ a: { b: [{ c: empty(128) }], d: empty(128) } }), why)
  const members = Object.fromEntries(Array.from({ length: 300 }, (_, n) => [`k${n}`, 1]))
  assert.equal(fault(members), why)
})

test('values at several places count together', () => {
  const half = Array.from({ length: 129 }, () => 0)
  assert.match(tooMuchToSay('{}', [half, half], ['a'], ['b']) ?? '', /^Invalid params: a and b have too many/)
  assert.equal(tooMuchToSay('{}', [half, undefined], ['a'], ['b']), undefined)
})

test('ordinary initialize requests are so small that the limit of sessions comes first', () => {
  const initializeParams = {
    protocolVersion: '2025-11-25',
    capabilities: { roots: { listChanged: true }, sampling: {}, elicitation: {} },
    clientInfo: { name: 'an-agent', title: 'An agent', version: '1.2.3' },
  }
  const headers = { host: '127.0.0.1:8080', accept: 'application/json, text/event-stream' }
  assert.ok(initializeBytes(initializeParams, headers) < (64 * 1024 ** 2) / 10_000)
})
