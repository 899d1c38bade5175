import assert from 'node:assert/strict'
import { test } from 'node:test'
import { metaOf, withMeta } from '../../src/protocol/meta.ts'

const read = (text: string) => ({ text, value: JSON.parse(text) as Record<string, unknown> })

/** Returns the text with `k: 1` in its `_meta`, after checking the same change in its parsed value. */
function patched(text: string, root: 'params' | 'result' = 'params') {
  const message = withMeta(read(text), root, 'k', 1)
  assert.deepEqual(message.value, JSON.parse(message.text))
  assert.equal(metaOf(message.value, root, 'k'), 1)
  return message.text
}

test('an entry is put into the _meta that is there, or into a new one; every other byte stays', () => {
  assert.equal(
    patched('{"id":1.0, "params" : { "_meta" : { "a" : 1e1 } , "x":0 }}'),
    '{"id":1.0, "params" : { "_meta" : {"k":1, "a" : 1e1 } , "x":0 }}',
  )
  assert.equal(patched('{"params":{"_meta":{}}}'), '{"params":{"_meta":{"k":1}}}')
  assert.equal(patched('{"params":{ "x":0}}'), '{"params":{"_meta":{"k":1}, "x":0}}')
  assert.equal(patched('{"params":{}}'), '{"params":{"_meta":{"k":1}}}')
  assert.equal(patched(' {"id":1}'), ' {"params":{"_meta":{"k":1}},"id":1}')
  assert.equal(patched('{}', 'result'), '{"result":{"_meta":{"k":1}}}')
})

test('an existing entry with the same key gives way', () => {
  assert.equal(patched('{"params":{"_meta":{"a":0,"k" : [2] }}}'), '{"params":{"_meta":{"a":0,"k" : 1 }}}')
})

test('a _meta that is no object is replaced: a second _meta before would not count', () => {
  for (const other of ['null', '[]', '7', '"x"'])
    assert.equal(patched(`{"params":{"_meta": ${other},"x":0}}`), '{"params":{"_meta": {"k":1},"x":0}}')
  assert.equal(patched('{"params":null,"x":0}'), '{"params":{"_meta":{"k":1}},"x":0}')
})

test('the last of two equal names counts, as for readers', () => {
  assert.equal(
    patched('{"params":{"_meta":{"a":1},"_meta":{"b":1}}}'),
    '{"params":{"_meta":{"a":1},"_meta":{"k":1,"b":1}}}',
  )
})

test('an entry outside of _meta is not found', () => {
  assert.equal(metaOf({}, 'params', 'k'), undefined)
  assert.equal(metaOf({ params: null }, 'params', 'k'), undefined)
  assert.equal(metaOf({ params: { k: 1, _meta: [1] } }, 'params', 'k'), undefined)
  assert.equal(metaOf({ result: { _meta: { k: 1 } } }, 'params', 'k'), undefined)
})
