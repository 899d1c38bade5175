import assert from 'node:assert/strict'
import { test } from 'node:test'
import { firstOf, numbered } from '../../src/units/numbered.ts'

test('one thing is told in the singular', () => {
  assert.deepEqual(
    [0, 1, 2].map((count) => numbered(count, 'call')),
    ['0 calls', '1 call', '2 calls'],
  )
})

test('of many names the first twenty are told, and how many more there are', () => {
  const names = Array.from({ length: 21 }, (_, at) => `s${at}`)
  assert.equal(firstOf(names.slice(0, 20)), names.slice(0, 20).join(', '))
  assert.match(firstOf(names), /, s19, and 1 more$/)
})
