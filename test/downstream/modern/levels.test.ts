import assert from 'node:assert/strict'
import { test } from 'node:test'
import { admits, isMoreVerbose } from '../../../src/downstream/modern/call.ts'

test('a client gets messages of the level that it asked for, and of graver ones', () => {
  assert.equal(admits('warning', 'warning'), true)
  assert.equal(admits('warning', 'emergency'), true)
  assert.equal(admits('warning', 'info'), false)
})

test('a client that asked for nothing, or for what is no level, gets no messages', () => {
  assert.equal(admits(undefined, 'emergency'), false)
  assert.equal(admits('loud', 'emergency'), false)
})

test('a message without a level reaches no client', () => {
  assert.equal(admits('debug', undefined), false)
})

test('a server is asked for more only if it sends less', () => {
  assert.equal(isMoreVerbose('error', undefined), true)
  assert.equal(isMoreVerbose('debug', 'error'), true)
  assert.equal(isMoreVerbose('error', 'error'), false)
  assert.equal(isMoreVerbose('error', 'debug'), false)
})

test('an invalid level reaches no server', () => {
  assert.equal(isMoreVerbose('loud', undefined), false)
  assert.equal(isMoreVerbose('loud', 'debug'), false)
})
