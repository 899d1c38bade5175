import assert from 'node:assert/strict'
import { test } from 'node:test'
import { labelValue, OTHER } from '../../../src/telemetry/metrics/label-value.ts'

test('usual names, of any language, stay as they are', () => {
  for (const name of ['search', 'read_file', 'a.b/c:d-e', 'größe', '検索', 'two words', 'हिन्दी', '🔍', ''])
    assert.equal(labelValue(name), name)
})

test('characters that break series or lines are replaced, and a hash keeps such names apart', () => {
  for (const name of ['1,b:2', 'say "x"', 'back\\slash', 'two\nlines', 'nul\0', 'bidi\u202e', 'half \ud800'])
    assert.match(labelValue(name), /^[^,"\\\n\0\u202e\ud800]*~[0-9a-f]{8}$/)
  assert.notEqual(labelValue('a,b'), labelValue('a"b'))
})

test('names of any length become short, and those that differ in the end only stay apart', () => {
  const long = 'x'.repeat(10_240)
  assert.ok(labelValue(long).length <= 120)
  assert.notEqual(labelValue(`${long}1`), labelValue(`${long}2`))
  assert.equal(labelValue('x'.repeat(120)), 'x'.repeat(120))
})

test('no half of a character is left where a name is cut', () => {
  for (const before of [110, 111, 112]) {
    const value = labelValue('x'.repeat(before) + '🔍'.repeat(10))
    assert.equal(Buffer.from(value).toString(), value)
  }
})

test('no name passes for the label of all others, or for a changed name', () => {
  assert.notEqual(labelValue(OTHER), OTHER)
  const changed = labelValue('a,b')
  assert.notEqual(labelValue(changed), changed)
})
