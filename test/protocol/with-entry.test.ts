import assert from 'node:assert/strict'
import { test } from 'node:test'
import { withEntry } from '../../src/protocol/meta.ts'

const parse = (text: string) => JSON.parse(text) as Record<string, unknown>

test('a copy has an added or replaced entry, and the original is unchanged', () => {
  const original = parse('{"a":1,"b":{"c":2}}')
  const more = withEntry(original, 'd', 3)
  assert.deepEqual(more, { a: 1, b: { c: 2 }, d: 3 })
  assert.deepEqual(withEntry(original, 'a', 3), { a: 3, b: { c: 2 } })
  assert.equal(more.b, original.b)
  assert.deepEqual(original, { a: 1, b: { c: 2 } })
})

test('a member that is called __proto__ stays a member', () => {
  const copy = withEntry(parse('{"a":1,"__proto__":{"polluted":true}}'), 'b', 2)
  assert.deepEqual(Object.keys(copy).sort(), ['__proto__', 'a', 'b'])
  assert.equal(copy.polluted, undefined)
  assert.equal(Object.getPrototypeOf(copy), Object.prototype)
})
