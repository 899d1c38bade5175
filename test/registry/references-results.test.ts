import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { Message } from '../../src/mesh/call.ts'
import { Names } from '../../src/registry/names.ts'
import { exposeResponse } from '../../src/registry/references.ts'
import { isStillBytes, largeMessage } from '../support/large-message.ts'

const names = new Names('__')

const read = (text: string): Message => ({ text, value: JSON.parse(text) as Message['value'] })

/** A response with this result, and unknown members. */
const response = (result: string) => read(`{"x":[1.0], "jsonrpc":"2.0","id":1,"result":${result} }`)

test('every place of a result that refers to something of its server names the server', () => {
  for (const [result, expected] of [
    [
      '{"content":[{"type":"resource_link","uri":"file:///a"}]}',
      '{"content":[{"type":"resource_link","uri":"breakwater://s/file:///a"}]}',
    ],
    [
      '{"content":[{"type":"resource","resource":{"uri":"ui://w","text":""}}]}',
      '{"content":[{"type":"resource","resource":{"uri":"ui://s__w","text":""}}]}',
    ],
    [
      '{"contents":[{"uri":"a"},{"uri":"b"}]}',
      '{"contents":[{"uri":"breakwater://s/a"},{"uri":"breakwater://s/b"}]}',
    ],
    [
      '{"messages":[{"content":{"type":"resource","resource":{"uri":"a"}}}]}',
      '{"messages":[{"content":{"type":"resource","resource":{"uri":"breakwater://s/a"}}}]}',
    ],
    ['{"taskId":"1"}', '{"taskId":"s__1"}'],
    ['{"task":{"taskId":"1","ttl":1.0}}', '{"task":{"taskId":"s__1","ttl":1.0}}'],
    [
      '{"_meta":{"io.modelcontextprotocol/related-task":{"taskId":"1"}}}',
      '{"_meta":{"io.modelcontextprotocol/related-task":{"taskId":"s__1"}}}',
    ],
    [
      '{"_meta":{"ui":{"resourceUri":"ui://w/a","x":1.0},"ui/resourceUri":"ui://w/b"},"content":[]}',
      '{"_meta":{"ui":{"resourceUri":"ui://s__w/a","x":1.0},"ui/resourceUri":"ui://s__w/b"},"content":[]}',
    ],
    [
      '{"content":[{"type":"text","text":"t"}],"_meta":{"openai/outputTemplate":"ui://w/a"}}',
      '{"content":[{"type":"text","text":"t"}],"_meta":{"openai/outputTemplate":"ui://s__w/a"}}',
    ],
  ] as const) {
    const exposed = exposeResponse('s', response(result), names)
    assert.equal(exposed.text, response(expected).text)
    assert.deepEqual(exposed.value, JSON.parse(exposed.text))
  }
})

test('a large result names the server as well, and stays bytes', () => {
  const long = 'ü'.repeat(20_000)
  const result = (uri: string) =>
    `{"content":[{"type":"text","text":"${long}"},{"type":"resource_link","uri":"${uri}"},{"type":"resource","resource":{"uri":"${uri}","text":"${long}"}}]}`
  const exposed = exposeResponse('s', largeMessage(response(result('file:///a')).text), names)
  assert.ok(isStillBytes(exposed))
  const expected = response(result('breakwater://s/file:///a'))
  assert.deepEqual(exposed.value, expected.value)
  assert.equal(exposed.text, expected.text)
})

test('the rest of a result stays, to the byte', () => {
  for (const result of [
    '{"content":[{"type":"text","text":"file:///a","uri":"a"}],"structuredContent":{"uri":"a","taskId":"1"}}',
    '{"content":[{"type":"resource_link","uri":7},{"type":"resource"},null,3],"contents":[{}],"messages":[{},{"content":1}]}',
    '{"content":"text","contents":{},"messages":7,"task":null,"taskId":7,"_meta":[]}',
    '{"n":12345678901234567890,"f":1.0}',
  ]) {
    const message = response(result)
    assert.equal(exposeResponse('s', message, names), message, result)
  }
  const error = read('{"jsonrpc":"2.0","id":1,"error":{"code":1,"data":{"taskId":"1"}}}')
  assert.equal(exposeResponse('s', error, names), error)
})

test('a result with many references takes time in proportion', { timeout: 20_000 }, () => {
  const upstreamSession =
    '{"type":"resource_link","uri":"file:///a","description":"............................"}'
  const message = response(`{"content":[${new Array<string>(50_000).fill(upstreamSession).join()}]}`)
  const exposed = exposeResponse('s', message, names).value.result as { content: { uri: string }[] }
  assert.equal(exposed.content.at(-1)?.uri, 'breakwater://s/file:///a')
})
