import assert from 'node:assert/strict'
import { test } from 'node:test'
import { decodeHeaderValue, encodeHeaderValue } from '../../src/protocol/versions.ts'

const values = [
  'plain',
  'two words',
  'Zürich',
  '東京 🙂',
  ' blank around ',
  '',
  'a\nb',
  '=?base64?odd',
  '=?base64?YQ==?=',
]

test('every value survives its way through a header', () => {
  for (const value of values) assert.equal(decodeHeaderValue(encodeHeaderValue(value)), value)
})

test('plain ASCII travels unchanged, everything else in base64', () => {
  assert.equal(encodeHeaderValue('plain value'), 'plain value')
  assert.equal(encodeHeaderValue('Zürich'), '=?base64?WsO8cmljaA==?=')
  assert.match(encodeHeaderValue(' x'), /^=\?base64\?/)
  assert.match(encodeHeaderValue('=?base64?odd'), /^=\?base64\?/)
})

test('blanks around a header are no part of its value', () => {
  assert.equal(decodeHeaderValue('  name  '), 'name')
})

test('broken base64 is no value', () => {
  for (const header of ['=?base64?SGVsbG8?=', '=?base64?SGVs!!!bG8=?=', '=?base64?=']) {
    assert.equal(decodeHeaderValue(header), undefined, header)
  }
})

test('a value that only begins like base64 is taken literally', () => {
  assert.equal(decodeHeaderValue('=?base64?SGVsbG8='), '=?base64?SGVsbG8=')
})
