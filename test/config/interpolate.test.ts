import assert from 'node:assert/strict'
import { test } from 'node:test'
import { interpolate } from '../../src/config/files/interpolate.ts'

const env = { HOME: '/home/ada', EMPTY: '', SNEAKY: '${HOME}', A_1: 'x' }
const fill = (text: string) => interpolate(text, env).text
const problems = (text: string) => interpolate(text, env).problems

test('a variable is replaced anywhere', () => {
  assert.equal(fill('${HOME}/notes'), '/home/ada/notes')
  assert.equal(fill('${env:HOME}:${A_1}'), '/home/ada:x')
  assert.equal(fill('[${EMPTY}]'), '[]')
})

test('a default stands in for a variable that is unset or empty', () => {
  assert.equal(fill('${NOPE:-8080}'), '8080')
  assert.equal(fill('${EMPTY:-8080}'), '8080')
  assert.equal(fill('${env:NOPE:-a:-b}'), 'a:-b')
  assert.equal(fill('${NOPE:-}'), '')
  assert.equal(fill('${HOME:-/root}'), '/home/ada')
})

test('a default may hold references of its own', () => {
  assert.equal(fill('${NOPE:-${HOME}/x}!'), '/home/ada/x!')
  assert.equal(fill('${NOPE:-${NEITHER:-z}}'), 'z')
  assert.deepEqual(problems('${HOME:-${NEITHER}}'), [])
})

test('the value of a variable is used unchanged', () => {
  assert.equal(fill('${SNEAKY}'), '${HOME}')
})

test('a literal ${ is written $${', () => {
  assert.equal(fill('$${HOME}'), '${HOME}')
  assert.equal(fill('$${HOME} ${A_1}'), '${HOME} x')
  assert.deepEqual(interpolate('$${HOME}', env).variables, [])
})

test('a lone dollar sign means nothing', () => {
  assert.equal(fill('$HOME costs $5 {x}'), '$HOME costs $5 {x}')
})

test('an unset variable without a default is a problem that names it', () => {
  assert.deepEqual(problems('${NOPE}'), [
    'environment variable NOPE is not set; set it, or write ${NOPE:-default}',
  ])
  assert.equal(problems('${NOPE} ${NEITHER}').length, 2)
})

test('a reference without an end, or to no variable, is a problem', () => {
  assert.match(problems('${HOME')[0] ?? '', /has no "}"/)
  for (const wrong of ['${}', '${1A}', '${A B}', '${HOME-x}', '${file:/etc/passwd}']) {
    assert.match(problems(wrong)[0] ?? '', /names no variable; allowed are \$\{VAR\}/, wrong)
  }
})

test('a reference that asks a person for input is explained', () => {
  assert.match(problems('${input:api-key}')[0] ?? '', /^\$\{input:api-key\} asks a person/)
})

test('no text of a wrong reference is repeated, it may be a secret', () => {
  assert.doesNotMatch(problems('${s3cret value}').join(), /s3cret/)
  assert.doesNotMatch(problems('${s3cret').join(), /s3cret/)
})
