import assert from 'node:assert/strict'
import { test } from 'node:test'
import { difference } from '../../../src/policies/verdict/judge.ts'

/** Lists inside each other, with something in the innermost. */
function nested(depth: number, innermost: unknown): unknown {
  let value = innermost
  for (let n = 0; n < depth; n++) value = [value]
  return value
}

test('the first difference of two values is named by its path', () => {
  for (const [a, b, path] of [
    [1, 1, undefined],
    [1, '1', ''],
    [null, {}, ''],
    [[], {}, ''],
    [{ a: 1, b: [1, 2] }, { b: [1, 2], a: 1 }, undefined],
    [{ a: 1, b: [1, 2] }, { b: [1, 3], a: 1 }, '/b/1'],
    [{ a: { b: {} } }, { a: { b: { c: 1 } } }, '/a/b'],
    [{ a: { b: { c: 1 } } }, { a: { b: {} } }, '/a/b/c'],
    [[1, 2], [1], '/1'],
    [[1], [1, 2], ''],
    [{ a: [], b: 1 }, { a: [], b: 2 }, '/b'],
    [{ constructor: 1 }, { a: 1 }, '/constructor'],
  ] as const)
    assert.equal(difference(a, b), path, JSON.stringify([a, b]))
})

test('values that are nested deeper than the stack are compared all the same', () => {
  assert.equal(difference(nested(30_000, 1), nested(30_000, 1)), undefined)
  assert.equal(difference(nested(30_000, 1), nested(30_000, 2)), '/0'.repeat(64))
})
