import assert from 'node:assert/strict'
import { test } from 'node:test'
import {
  errorText,
  isRequestId,
  kindOf,
  notificationText,
  paramsOf,
  parseJson,
  readMessage,
  readMessages,
  requestText,
  resultText,
  type Kind,
} from '../../src/protocol/jsonrpc.ts'

/** The kind of a message with this rest. */
const kind = (rest: Readonly<Record<string, unknown>>) => kindOf({ jsonrpc: '2.0', ...rest })

test('a message is a request, a notification or a response', () => {
  const expected: [Kind, Readonly<Record<string, unknown>>][] = [
    ['request', { id: 1, method: 'ping' }],
    ['request', { id: 0, method: 'ping' }],
    ['request', { id: '', method: 'ping', params: {} }],
    ['request', { id: -1.5, method: '' }],
    ['notification', { method: 'x' }],
    ['notification', { method: 'x', params: { a: 1 }, extra: true }],
    ['response', { id: 0, result: {} }],
    ['response', { id: 'a', error: {} }],
    ['response', { id: null, error: { code: -32700 } }],
    ['response', { error: { code: -32700 } }],
  ]
  for (const [name, rest] of expected) assert.equal(kind(rest), name, JSON.stringify(rest))
})

test('a value of another shape is no message', () => {
  const shapes: Readonly<Record<string, unknown>>[] = [
    {},
    { id: 1 },
    { id: null, method: 'x' },
    { id: {}, method: 'x' },
    { id: true, method: 'x' },
    { id: 1, method: 7 },
    { id: 1, method: 'x', params: [] },
    { id: 1, method: 'x', params: null },
    { method: 'x', params: 'text' },
    { id: null, result: {} },
    { result: {} },
    { id: 1, result: 'text' },
    { id: 1, result: null },
    { id: 1, error: 'text' },
    { id: 1, result: {}, error: {} },
  ]
  for (const rest of shapes) assert.equal(kind(rest), undefined, JSON.stringify(rest))
  for (const jsonrpc of ['1.0', 2, undefined])
    assert.equal(kindOf({ jsonrpc, id: 1, method: 'x' }), undefined)
})

test('an id is a text or a number, and nothing else', () => {
  for (const id of ['', 'a', 0, -1, 1.5, Number.MAX_VALUE]) assert.equal(isRequestId(id), true)
  for (const id of [undefined, null, true, {}, [], NaN, Infinity]) assert.equal(isRequestId(id), false)
})

test('one message is read with its exact text', () => {
  const text = ' {"jsonrpc":"2.0", "id":12345678901234567890,"method":"x" }\n'
  assert.equal(readMessage(text)?.text, text)
  for (const other of ['', 'x', '7', 'null', '[]', '"a"', '{}', '{"jsonrpc":"2.0"', `[${text}]`]) {
    assert.equal(readMessage(other), undefined, other)
  }
})

/** Reads a body as the endpoint does. */
const read = (text: string) => readMessages(text, JSON.parse(text))?.map((message) => message.text)

test('a batch is read message by message, each with its exact text', () => {
  const [first, second] = [
    '{"jsonrpc":"2.0","id":1,"method":"a]"}',
    '{ "jsonrpc":"2.0","method":"b","x":1.0 }',
  ]
  assert.deepEqual(read(` [ ${first} ,\n${second}]`), [first, second])
  assert.deepEqual(read(`[${first}]`), [first])
  assert.deepEqual(read(first), [first])
})

test('a batch is all messages, at least one and at most a hundred, or nothing', () => {
  const message = '{"jsonrpc":"2.0","method":"a"}'
  const batch = (...messages: string[]) => `[${messages.join()}]`
  assert.equal(read(batch(...new Array<string>(100).fill(message)))?.length, 100)
  assert.equal(read(batch(...new Array<string>(101).fill(message))), undefined)
  for (const text of [
    '[]',
    batch(message, '{}'),
    batch(message, '1'),
    batch('[]'),
    batch(batch(message)),
    '1',
    'null',
  ]) {
    assert.equal(read(text), undefined, text)
  }
})

test('parameters are an object, whatever a message says', () => {
  assert.deepEqual(paramsOf({ params: { a: 1 } }), { a: 1 })
  for (const params of [undefined, null, [], 'a', 1]) assert.deepEqual(paramsOf({ params }), {})
})

test('text that is no JSON is undefined', () => {
  for (const text of ['', '{', 'undefined', '\ufeff{}', "{'a':1}"]) assert.equal(parseJson(text), undefined)
  assert.equal(parseJson('null'), null)
})

test('written messages can be read, with ids of every kind', () => {
  for (const id of [0, -1, '', 'a"b']) {
    assert.deepEqual(readMessage(requestText(id, 'm', { a: 1 }))?.value, {
      jsonrpc: '2.0',
      id,
      method: 'm',
      params: { a: 1 },
    })
    assert.deepEqual(readMessage(resultText(id, '{"n":1}'))?.value, { jsonrpc: '2.0', id, result: { n: 1 } })
  }
  assert.equal(resultText(1, '{"n":1.0}'), '{"jsonrpc":"2.0","id":1,"result":{"n":1.0}}')
  assert.equal(requestText(1, 'm'), '{"jsonrpc":"2.0","id":1,"method":"m"}')
  assert.equal(notificationText('m'), '{"jsonrpc":"2.0","method":"m"}')
})

test('an error has data only when there is some', () => {
  assert.equal(
    errorText(null, -32700, 'm'),
    '{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"m"}}',
  )
  assert.equal(errorText(0, 1, 'm', 7), '{"jsonrpc":"2.0","id":0,"error":{"code":1,"message":"m","data":7}}')
})
