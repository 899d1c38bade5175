import assert from 'node:assert/strict'
import { test } from 'node:test'
import { modernise } from '../../../src/downstream/modern/call.ts'
import { LargeMessage } from '../../../src/protocol/large-message.ts'
import { LongStrings } from '../../../src/protocol/long-strings.ts'
import { isStillBytes, largeMessage } from '../../support/large-message.ts'

const call = (text: string, status = 200, method = 'tools/call') =>
  modernise(method, 'mine', { text, status })

test('a result gets the id of its client and a type, and keeps every other byte', () => {
  const { text } = call(
    '{ "x":1.0,"jsonrpc":"2.0", "result": {"big":12345678901234567890,"b":"\\u00e9"},"id":"breakwater-1" }',
    200,
    'prompts/get',
  )
  assert.equal(
    text,
    '{ "x":1.0,"jsonrpc":"2.0", "result": {"resultType":"complete","big":12345678901234567890,"b":"\\u00e9"},"id":"mine" }',
  )
})

test('an empty result gets a type without a comma behind it', () => {
  assert.equal(
    call('{"jsonrpc":"2.0","id":1,"result":{}}', 200, 'completion/complete').text,
    '{"jsonrpc":"2.0","id":"mine","result":{"resultType":"complete"}}',
  )
})

test('the result of a tool without content gets an empty one, unless a server of this era wrote it', () => {
  assert.equal(
    call('{"id":1,"result":{"structuredContent":{"a":1}}}').text,
    '{"id":"mine","result":{"resultType":"complete","content":[],"structuredContent":{"a":1}}}',
  )
  for (const result of ['{"resultType":"task","taskId":"t"}', '{"resultType":"complete"}'])
    assert.equal(call(`{"id":1,"result":${result}}`).text, `{"id":"mine","result":${result}}`)
})

test('a numeric id stays a number', () => {
  const { text } = modernise('tools/call', 0, {
    text: '{"jsonrpc":"2.0","id":"x","result":{"resultType":"complete"}}',
    status: 200,
  })
  assert.equal(text, '{"jsonrpc":"2.0","id":0,"result":{"resultType":"complete"}}')
})

test("a server's own type and caching fields stay unchanged", () => {
  const said = '"result":{"tools":[],"resultType":"complete","ttlMs":5,"cacheScope":"public"}'
  assert.equal(call(`{"id":1,${said}}`, 200, 'tools/list').text, `{"id":"mine",${said}}`)
})

test('lists and resources get what they lack to say how long they keep', () => {
  for (const method of [
    'tools/list',
    'prompts/list',
    'resources/list',
    'resources/templates/list',
    'resources/read',
  ]) {
    const { result } = JSON.parse(call('{"id":1,"result":{"ttlMs":7}}', 200, method).text) as {
      result: object
    }
    assert.deepEqual(result, { resultType: 'complete', ttlMs: 7, cacheScope: 'private' }, method)
  }
})

test('a resource that is not there has the code of this era, and its data', () => {
  const { text } = call(
    '{"id":1,"error":{"code":-32002,"message":"no","data":{"uri":"a://b"}}}',
    200,
    'resources/read',
  )
  assert.equal(text, '{"id":"mine","error":{"code":-32602,"message":"no","data":{"uri":"a://b"}}}')
})

test('an unknown method is 404, whatever the server said it with', () => {
  assert.equal(call('{"id":1,"error":{"code":-32601,"message":"no"}}').status, 404)
})

test('headers that differ and a capability that is missing are 400, whatever the server said it with', () => {
  for (const code of [-32020, -32021])
    assert.equal(call(`{"id":1,"error":{"code":${code},"message":"no"}}`).status, 400)
})

test('no other error is 404: a client of this era has no session to lose', () => {
  assert.equal(call('{"id":1,"error":{"code":1404,"message":"lost"}}', 404).status, 200)
  assert.equal(call('{"id":1,"error":{"code":-32021,"message":"no"}}', 400).status, 400)
})

test('an answer without an id gets one', () => {
  assert.equal(
    call('{"error":{"code":1,"message":"m"}}').text,
    '{"id":"mine","error":{"code":1,"message":"m"}}',
  )
})

test('the effective one of two ids in a message is replaced by the id of the client', () => {
  const { text } = call('{"id":1,"result":{"resultType":"complete"},"id":2}')
  assert.equal((JSON.parse(text) as { id: unknown }).id, 'mine')
})

test('a large result gets both in its bytes, and no other byte is touched or copied', () => {
  const long = 'ü'.repeat(50_000)
  for (const [text, expected] of [
    [
      `{"id":"breakwater-1","result":{"text":"${long}"}}`,
      `{"id":"mine","result":{"resultType":"complete","text":"${long}"}}`,
    ],
    [
      ` { "result" :\n {"a":1.0,"text":"${long}", "b":[]} ,"id": "breakwater-1" } `,
      ` { "result" :\n {"resultType":"complete","a":1.0,"text":"${long}", "b":[]} ,"id": "mine" } `,
    ],
    [
      `{"id":1,"result":{"resultType":"complete","text":"${long}"}}`,
      `{"id":"mine","result":{"resultType":"complete","text":"${long}"}}`,
    ],
  ] as const) {
    const chunk = Buffer.from(text)
    const strings = new LongStrings()
    strings.read(chunk)
    const modern = modernise('prompts/get', 'mine', LargeMessage.read([chunk], strings)!)
    assert.ok(LargeMessage.is(modern))
    assert.ok(modern.chunks.some(({ buffer, length }) => buffer === chunk.buffer && length > 100_000))
    assert.equal(Buffer.concat(modern.chunks).toString(), expected)
  }
})

test('a large error has the code and the status of this era, and so has an unusual object of many members; both stay bytes', () => {
  const many = Array.from({ length: 20 }, (_, index) => `"m${index}":1,`).join('')
  for (const [said, expected, status] of [
    ['"error":{"code":-32002,"message":"no","data":"', '"error":{"code":-32602,"message":"no","data":"', 200],
    ['"error":{"code":-32601,"message":"', '"error":{"code":-32601,"message":"', 404],
    [`${many}"result":{"text":"`, `${many}"result":{"resultType":"complete","text":"`, 200],
  ] as const) {
    const end = `${'x'.repeat(70_000)}"}}`
    const modern = modernise('prompts/get', 'mine', largeMessage(`{"id":1,${said}${end}`))
    assert.ok(isStillBytes(modern))
    assert.equal(modern.text, `{"id":"mine",${expected}${end}`)
    assert.equal(modern.status, status)
  }
})
