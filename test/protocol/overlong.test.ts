import assert from 'node:assert/strict'
import { test } from 'node:test'
import { endsOf, repliedId, wholeWords } from '../../src/protocol/overlong.ts'

const padding = 'x'.repeat(2_000)

/** Returns the id found at the two ends of a text. */
function idOf(text: string): number | undefined {
  return repliedId(endsOf(text))
}

test('the id of a reply is found at either end', () => {
  const result = `"result":{"content":"${padding}"}`
  assert.equal(idOf(`{"jsonrpc":"2.0","id":7,${result}}`), 7)
  assert.equal(idOf(`{"id":7,"jsonrpc":"2.0",${result}}`), 7)
  assert.equal(idOf(` { "id" : 7 , ${result}} `), 7)
  assert.equal(idOf(`{${result},"jsonrpc":"2.0","id":7}`), 7)
  assert.equal(idOf(`{"jsonrpc":"2.0",${result},"id":7}`), 7)
  assert.equal(idOf(`{${result} , "id" : 7, "jsonrpc": "2.0" }\n`), 7)
  assert.equal(idOf(`{"x-unknown":1.0,"id":7,${result}}`), 7)
  assert.equal(idOf(`{"x-unknown":1.0,${result},"id":7,"x-more":"?"}`), 7)
  assert.equal(idOf(`{"jsonrpc":"2.0","id":7,"error":{"code":1,"message":"${padding}"}}`), 7)
})

test('the id of a request of the server is not taken for an id of a reply', () => {
  const params = `"params":{"content":"${padding}"}`
  assert.equal(idOf(`{"jsonrpc":"2.0","id":7,"method":"sampling/createMessage",${params}}`), undefined)
  assert.equal(idOf(`{"method":"sampling/createMessage",${params},"jsonrpc":"2.0","id":7}`), undefined)
})

test('an id inside the result is not that of the reply', () => {
  assert.equal(idOf(`{"jsonrpc":"2.0","result":{"content":"${padding}","id":7}}`), undefined)
  assert.equal(idOf(`{"result":{"id":7,"content":"${padding}"},"id":8}`), 8)
  assert.equal(idOf(`{"jsonrpc":"2.0","id":8,"result":{"content":"${padding}","id":7}}`), 8)
  assert.equal(idOf(`{"result":{"text":"${padding},\\"id\\":7}"},"id":8}`), 8)
})

test('a text without the id of a reply has no id', () => {
  assert.equal(idOf(padding), undefined)
  assert.equal(idOf(`{"jsonrpc":"2.0","method":"notifications/message","params":"${padding}"}`), undefined)
  assert.equal(idOf(`{"jsonrpc":"2.0","id":"7","result":"${padding}"}`), undefined)
})

test('both ends of a text are given without the cut words', () => {
  assert.deepEqual(wholeWords({ head: 'a first secr', tail: 'et and last' }), {
    head: 'a first ',
    tail: ' and last',
  })
  assert.deepEqual(wholeWords({ head: 'secret', tail: 'secret' }), { head: '', tail: '' })
})
