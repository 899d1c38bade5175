import assert from 'node:assert/strict'
import { test } from 'node:test'
import { isDeeperThan, skipString, skipValue } from '../../src/protocol/json-span.ts'

test('a text that ends in the middle of a string or an object ends there for all who walk over it', () => {
  const long = 'x'.repeat(100)
  for (const cut of ['["', '["a', '["a\\', '["a\\"', `["${long}`, `["${long}\\"`, '[{"a":', '[[', '[']) {
    assert.equal(isDeeperThan(5, cut), false, cut)
    assert.equal(skipValue(cut, 0), cut.length, cut)
    if (cut[1] === '"') assert.equal(skipString(cut, 1), cut.length, cut)
  }
})

test('brackets and quotes within strings nest nothing, whatever stands before them', () => {
  for (const inner of ['"[[[["', '"\\"[[[["', '"\\\\"', `"${'x'.repeat(100)}\\"[[[[\\\\"`]) {
    assert.equal(isDeeperThan(1, `[${inner}]`), false, inner)
    assert.equal(skipString(`[${inner}]`, 1), inner.length + 1, inner)
    assert.equal(isDeeperThan(1, `[${inner},[]]`), true, inner)
  }
})
