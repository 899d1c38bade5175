import assert from 'node:assert/strict'
import { test } from 'node:test'
import { firstOf, numbered } from '../../src/units/numbered.ts'

test('a count of one uses the singular', () => {
  assert.deepEqual(
    [0, 1, 2].map((count) => numbered(count, 'call')),
    ['0 calls', '1 call', '2 calls'],
  )
})

test('the first twenty of many names are listed, with the number of the others', () => {
  const names = Array.from({ length: 21 }, (_, at) => `s${at}`)
  assert.equal(firstOf(names.slice(0, 20)), names.slice(0, 20).join(', '))
  assert.match(firstOf(names), /, s19, and 1 more$/)
})
