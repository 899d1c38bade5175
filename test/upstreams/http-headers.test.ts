import assert from 'node:assert/strict'
import { test } from 'node:test'
import { ReplyHeaders } from '../../src/upstreams/http/http-status.ts'

const headers = (...raw: string[]) => new ReplyHeaders(raw.map((text) => Buffer.from(text, 'latin1')))

test('a header is found whatever the case of its name', () => {
  for (const name of ['mcp-session-id', 'Mcp-Session-Id', 'MCP-SESSION-ID']) {
    assert.equal(headers('x', '1', name, 'Ab').get('mcp-session-id'), 'Ab')
  }
})

test('the first of several headers with one name counts, and a missing header is undefined', () => {
  const several = headers('a', '1', 'A', '2', 'b', '')
  assert.deepEqual(
    ['a', 'b', 'c'].map((name) => several.get(name)),
    ['1', '', undefined],
  )
  assert.equal(headers().get('a'), undefined)
  assert.equal(headers('odd').get('odd'), undefined)
})

test('a header value is never taken for a name', () => {
  assert.equal(headers('x', 'a', 'a', '1').get('a'), '1')
})

test('the media type is in lower case, and empty when there is none', () => {
  assert.equal(
    headers('Content-Type', 'Text/Event-Stream; Charset=UTF-8').mediaType,
    'text/event-stream; charset=utf-8',
  )
  assert.equal(headers().mediaType, '')
})
