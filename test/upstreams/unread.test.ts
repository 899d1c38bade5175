import assert from 'node:assert/strict'
import { test } from 'node:test'
import { Unread } from '../../src/upstreams/unread.ts'

test('reading a server pauses while a caller has four messages or more to take', async () => {
  const unread = new Unread({ messages: 10, bytes: 1_000 })
  for (let n = 0; n < 3; n++) unread.admit('a message')
  assert.equal(unread.backpressure(), undefined)
  const bytes = unread.admit('a message')
  unread.admit('a message')
  let isCalm = false
  const waited = unread.backpressure()?.then(() => (isCalm = true))
  assert.ok(waited)
  unread.release(bytes)
  await new Promise((resolve) => setImmediate(resolve))
  assert.equal(isCalm, false)
  unread.release(bytes)
  await waited
  assert.equal(unread.backpressure(), undefined)
})

test('a backlog over the limit is refused, but never a single message', () => {
  const unread = new Unread({ messages: 2, bytes: 10 })
  const bytes = unread.admit('x'.repeat(100))
  assert.throws(() => unread.admit('y'), { reason: 'overloaded' })
  unread.release(bytes)
  unread.admit('1')
  unread.admit('2')
  assert.throws(() => unread.admit('3'), { reason: 'overloaded' })
})
