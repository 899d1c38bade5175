import assert from 'node:assert/strict'
import { test } from 'node:test'
import { withoutEnvelope } from '../../src/protocol/versions.ts'

const version = '"io.modelcontextprotocol/protocolVersion": "2026-07-28"'
const info = '"io.modelcontextprotocol/clientInfo":{"name":"a","version":"1"}'

test('members of the modern era are removed from a request, and every other byte stays', () => {
  const request = (meta: string) => `{"id":1, "params": {"_meta":${meta},"n":1.0}}`
  const own = '"progressToken" : 7'
  assert.equal(withoutEnvelope(request(`{${version},${own}, ${info}}`)), request(`{${own}}`))
  assert.equal(withoutEnvelope(request(`{ ${version} }`)), request('{}'))
})

test('a request without an envelope is the same text', () => {
  for (const text of [
    '{"id":1}',
    '{"params":{}}',
    '{"params":{"_meta":null}}',
    '{"params":{"_meta":{"io.modelcontextprotocol/related-task":{"taskId":"t"}}}}',
  ])
    assert.equal(withoutEnvelope(text), text)
})
