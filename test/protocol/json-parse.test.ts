import assert from 'node:assert/strict'
import { test } from 'node:test'
import { readJson } from '../../src/protocol/json-check.ts'
import { hasEscapedKey, parseExactly, readExactly } from '../../src/protocol/json-parse.ts'

/** A text with one key, in this exact spelling. */
const keyed = (key: string, value = '1') => `{"h":${value},"${key}":2}`

test('a key is read as written, after any other keys', () => {
  const written = [
    '\\u0061',
    '\\u0062',
    '\\n',
    '\\/',
    '\\\\',
    '\\"',
    'na\\u006de',
    'x\\ty',
    '\\uD83D\\uDE00',
    'é',
  ]
  for (const before of ['\\\\', 'na\\\\u', 'x\\\\', 'b', '\\"'])
    for (const key of written) {
      JSON.parse(keyed(before, '[]'))
      const expected = JSON.parse(`"${key}"`) as string
      assert.deepEqual(
        Object.keys(parseExactly(keyed(key)) as object),
        ['h', expected],
        `${key} after ${before}`,
      )
      const read = readJson(keyed(key))
      assert.deepEqual(read.ok && Object.keys(read.value as object), ['h', expected])
    }
})

test('a name that is written with an escape is the name that is checked', () => {
  const call = (key: string) =>
    `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"${key}":"admin","name":"safe"}}`
  readJson(call('na\\\\u'))
  const read = readJson(call('na\\u006de'))
  assert.ok(!read.ok)
  assert.match(read.message, /occurs twice/)
})

test('keys with escapes are found, and strings with escapes are none', () => {
  for (const text of ['{"\\u0061":1}', '[{"a":{"b\\n" \n : 1}}]', '{"a":"x","\\"":"y"}'])
    assert.equal(hasEscapedKey(text), true, text)
  for (const text of ['{"a":"\\u0061"}', '["\\":",":"]', '{"a":"\\\\"}', '"\\n"', '{"a', '{"\\'])
    assert.equal(hasEscapedKey(text), false, text)
})

test('the hand-written reader agrees with JSON.parse', () => {
  const texts = [
    ' { "a" : [ 1 , -2.5e3 , true , null , "\\u0041\\n" , { } , [ ] ] , "b" : { "c" : { "d" : "}]" } } } ',
    '{"__proto__":{"x":1},"a":{"__proto__":2}}',
    '{"2":"b","1":"a","a":1,"a":2}',
    '[[[]],[{}],""]',
    '"text"',
    '17',
    'null',
  ]
  for (const text of texts) assert.deepEqual(readExactly(text), JSON.parse(text), text)
  const own = readExactly('{"__proto__":{"x":1}}') as object
  assert.ok(Object.hasOwn(own, '__proto__') && Object.getPrototypeOf(own) === Object.prototype)
})

test('invalid JSON is an error, and deep nesting is harmless', () => {
  for (const text of ['{"\\u0061":}', '{"\\u0061":1', '{"\\u0061" 1}', '[1,]', ''])
    assert.throws(() => parseExactly(text), SyntaxError, text)
  const levels = 30_000
  assert.ok(Array.isArray(parseExactly(`${'['.repeat(levels)}{"\\n":1}${']'.repeat(levels)}`)))
})
