import assert from 'node:assert/strict'
import { test } from 'node:test'
import { jsonEnd } from '../../../src/policies/verdict/judge.ts'

const whole =
  '{"a" : [1, -2.5e+3, "x\\"\\u00e9\\\\", true, false, null, {}, [], [[0]]], "b":{"c":"{[\\n"} , "":12.25E-1 }'

test('every beginning of a JSON text is seen to be cut', () => {
  JSON.parse(whole)
  for (let end = 1; end < whole.length; end++)
    assert.equal(jsonEnd(whole.slice(0, end)), 'cut', whole.slice(0, end))
})

test('a wrong character is distinguished from an early end, at any place', () => {
  for (const text of [
    '{"a":1,}',
    '{a:1}',
    '{"a" 1}',
    '[1 2]',
    '[1,]',
    '[}',
    '{"a":tru}',
    '[01]',
    '["\n"]',
    '["\\x"]',
    '[nul]',
    '{"a":}',
    '[1.]',
  ])
    assert.equal(jsonEnd(text), 'broken', text)
})

test('a complete value with trailing text is neither cut nor wrong', () => {
  for (const text of ['{} {}', '[1]\n[2]', '{"a":1} done', '[]]']) assert.equal(jsonEnd(text), 'more', text)
})

test('long strings and deep nesting are read in time and without recursion', () => {
  assert.equal(jsonEnd('['.repeat(200_000)), 'cut')
  assert.equal(jsonEnd(`["${'\\\\'.repeat(100_000)}`), 'cut')
})
