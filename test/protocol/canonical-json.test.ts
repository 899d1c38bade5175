import assert from 'node:assert/strict'
import { test } from 'node:test'
import { configHash } from '../../src/config/hash.ts'
import { digest } from '../../src/chaos/decide/decide.ts'
import { canonicalJson } from '../../src/protocol/canonical-json.ts'

const value = {
  b: [1, -0, 2.5, 1e21, 'é\u2028"', null, true, {}],
  a: { z: [], 10: 'ten', 9: 'nine', Z: 1, '': 0, ä: [[]] },
  'a\nb': { c: '\ud83d\ude00', C: false },
}

const nested = (levels: number): unknown => {
  let held: unknown = 1
  for (let level = 0; level < levels; level++) held = level % 2 === 0 ? [held] : { held }
  return held
}

test('equal values have one stable text, in any order of their keys', () => {
  const text =
    '{"a":{"":0,"10":"ten","9":"nine","Z":1,"z":[],"ä":[[]]},"a\\nb":{"C":false,"c":"😀"},' +
    '"b":[1,0,2.5,1e+21,"é\u2028\\"",null,true,{}]}'
  assert.equal(canonicalJson(value), text)
  assert.equal(canonicalJson({ 'a\nb': value['a\nb'], b: value.b, a: value.a }), text)
  assert.deepEqual(JSON.parse(text), JSON.parse(JSON.stringify(value)))
})

test('hashes of canonical JSON match hashes in journals and stores', () => {
  assert.equal(digest(canonicalJson(value) ?? ''), '559b66ec359c5c49')
  assert.equal(configHash(value), '559b66ec359c5c49')
  assert.equal(configHash({ a: 1, u: undefined, l: [undefined, null] }), 'e41fded6f18cb3ca')
  assert.equal(configHash(undefined), '74234e98afe7498f')
})

test('undefined is left out of objects, and null elsewhere', () => {
  assert.equal(canonicalJson({ a: undefined, b: [undefined] }), '{"b":[null]}')
  assert.equal(canonicalJson(undefined), 'null')
})

test('a value that nests too deep has no text, and does not exhaust the stack', () => {
  assert.equal(canonicalJson(nested(3), { maxDepth: 3 }), '[{"held":[1]}]')
  assert.equal(canonicalJson(nested(4), { maxDepth: 3 }), undefined)
  assert.equal(canonicalJson(1, { maxDepth: 0 }), '1')
  assert.notEqual(canonicalJson(nested(1_000)), undefined)
  assert.equal(canonicalJson(nested(1_000_000)), undefined)
  assert.throws(() => configHash(nested(1_001)), RangeError)
})

test('each value is visited before being written, and the visitor may stop', () => {
  const seen: unknown[] = []
  canonicalJson({ b: [1], a: 'x' }, { visit: (held) => seen.push(held) })
  assert.deepEqual(seen, [{ b: [1], a: 'x' }, 'x', [1], 1])
  const visit = () => {
    throw new Error('enough')
  }
  assert.throws(() => canonicalJson([], { visit }), /enough/)
})
