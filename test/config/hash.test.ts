import assert from 'node:assert/strict'
import { test } from 'node:test'
import { configHash } from '../../src/config/hash.ts'

test('equal values have one hash, whatever the order of their keys', () => {
  assert.equal(configHash({ a: 1, b: { c: [1, 2], d: undefined } }), configHash({ b: { c: [1, 2] }, a: 1 }))
  assert.match(configHash({}), /^[0-9a-f]{16}$/)
})

test('values that differ have different hashes', () => {
  const values = [
    {},
    [],
    null,
    '',
    0,
    false,
    { a: [] },
    { a: {} },
    { a: '1' },
    { a: 1 },
    { a: [1, 2] },
    { a: [2, 1] },
    { 'a:1': 1 },
  ]
  assert.equal(new Set(values.map(configHash)).size, values.length)
})
