import assert from 'node:assert/strict'
import { test } from 'node:test'
import { paramsFault } from '../../src/protocol/lists.ts'

const strange: readonly unknown[] = [{ toString: 1 }, { length: 3 }, [], ['a'], 7, true, null]

test('a parameter of a wrong type is named, with what was expected', () => {
  assert.equal(
    paramsFault('tools/call', { name: { toString: 1 } }),
    'Invalid params: name must be a string, not an object',
  )
  assert.equal(paramsFault('tools/call', {}), 'Invalid params: name must be a string, not missing')
  assert.equal(
    paramsFault('ping', { _meta: { progressToken: { toString: 1 } } }),
    'Invalid params: _meta.progressToken must be a string or a number, not an object',
  )
})

test('no method accepts another type for a string parameter', () => {
  for (const [method, key] of [
    ['tools/call', 'name'],
    ['prompts/get', 'name'],
    ['resources/read', 'uri'],
    ['resources/subscribe', 'uri'],
    ['resources/unsubscribe', 'uri'],
    ['tasks/get', 'taskId'],
    ['tasks/result', 'taskId'],
    ['tasks/cancel', 'taskId'],
    ['tools/list', 'cursor'],
    ['resources/templates/list', 'cursor'],
    ['logging/setLevel', 'level'],
    ['initialize', 'protocolVersion'],
  ] as const) {
    for (const value of strange)
      assert.match(paramsFault(method, { [key]: value }) ?? '', new RegExp(key), method)
    assert.equal(paramsFault(method, { [key]: 'text' }), undefined, method)
  }
})

test('progress tokens are strings or numbers, whatever the method', () => {
  for (const method of ['tools/call', 'no/such', '__proto__']) {
    for (const progressToken of [{}, [], true, null])
      assert.match(paramsFault(method, { name: 'x', _meta: { progressToken } }) ?? '', /progressToken/)
    for (const progressToken of ['a', '', 0, 1.5])
      assert.equal(paramsFault(method, { name: 'x', _meta: { progressToken } }), undefined)
  }
})

test('a null parameter counts as absent', () => {
  assert.equal(paramsFault('tools/call', { name: 'x', arguments: null, _meta: null }), undefined)
})
