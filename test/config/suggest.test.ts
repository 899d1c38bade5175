import assert from 'node:assert/strict'
import { test } from 'node:test'
import { suggest } from '../../src/config/issues/suggest.ts'

const keys = ['url', 'urls', 'command', 'headers', 'timeouts', 'maxReply', 'forwardHeaders']

test('a typing error finds the key that was meant', () => {
  assert.equal(suggest('urlz', keys), 'url')
  assert.equal(suggest('comand', keys), 'command')
  assert.equal(suggest('haeders', keys), 'headers')
  assert.equal(suggest('timeout', keys), 'timeouts')
})

test('other ways to join words find it too', () => {
  assert.equal(suggest('max_reply', keys), 'maxReply')
  assert.equal(suggest('Forward-Headers', keys), 'forwardHeaders')
})

test('a word that is like nothing gets no suggestion', () => {
  assert.equal(suggest('colour', keys), undefined)
  assert.equal(suggest('x', []), undefined)
})
