import assert from 'node:assert/strict'
import { test } from 'node:test'
import { suggest, suggestions } from '../../src/units/suggest.ts'

const keys = ['url', 'urls', 'command', 'headers', 'timeouts', 'maxReply', 'forwardHeaders']

test('a typing error finds the key that was meant', () => {
  assert.equal(suggest('urlz', keys), 'url')
  assert.equal(suggest('comand', keys), 'command')
  assert.equal(suggest('haeders', keys), 'headers')
  assert.equal(suggest('timeout', keys), 'timeouts')
})

test('other ways to join words find the name too', () => {
  assert.equal(suggest('max_reply', keys), 'maxReply')
  assert.equal(suggest('Forward-Headers', keys), 'forwardHeaders')
})

test('a word unlike any key gets no suggestion', () => {
  assert.equal(suggest('colour', keys), undefined)
  assert.equal(suggest('x', []), undefined)
})

test('a part of a longer name finds it, but only where no whole name is as close', () => {
  const types = ['conn.latency', 'rpc.error', 'http.status']
  assert.equal(suggest('latency', types), 'conn.latency')
  assert.equal(suggest('latancy', types), 'conn.latency')
  assert.equal(suggest('added', ['added_ms', 'jitter_ms']), 'added_ms')
  assert.equal(suggest('HTTP', ['streamable-http', 'http']), 'http')
  assert.equal(suggest('is', ['result.is_error']), undefined)
})

test('up to three of several equally close words are suggested', () => {
  assert.deepEqual(suggestions('error', ['rpc.error', 'http.status', 'result.error']), [
    'rpc.error',
    'result.error',
  ])
  assert.equal(suggestions('conn', ['conn.a', 'conn.b', 'conn.c', 'conn.d']).length, 3)
  assert.deepEqual(suggestions('zzz', ['conn.a']), [])
})
