import assert from 'node:assert/strict'
import { test } from 'node:test'
import { Complaints } from '../../src/upstreams/stdio/start.ts'

function toldOf(lines: readonly string[]): string {
  const complaints = new Complaints()
  for (const line of lines) complaints.add(line)
  return complaints.told
}

const stack = (depth: number) => Array.from({ length: depth }, (_, n) => `    at f${n} (file.js:${n}:1)`)

test('the cause of a crash is its error, however long the stack below it is', () => {
  const crash = ['file.js:1', 'Error: no database', ...stack(100), '', 'Node.js v20.20.2']
  assert.equal(toldOf(crash), 'Error: no database')
  assert.equal(toldOf(['ready', ...stack(3), 'Node.js v20.20.2']), 'ready')
  assert.equal(toldOf(['Node.js v20.20.2']), 'Node.js v20.20.2')
  assert.equal(toldOf([]), '')
})

test('an error of long ago is not the cause of a crash', () => {
  const since = Array.from({ length: 201 }, (_, n) => `call ${n} answered`)
  assert.equal(toldOf(['error: one call failed', ...since]), 'call 200 answered')
})

test('a long complaint loses the word at its cut', () => {
  assert.equal(
    toldOf([`error: ${'x '.repeat(495)}secret-that-is-cut`]),
    `error: ${'x '.repeat(495)}`.trimEnd(),
  )
})
