import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { Message } from '../../src/mesh/call.ts'
import { fanOut } from '../../src/upstreams/fan-out.ts'

function updated(length: number): Message {
  const params = { uri: 'a://b', _meta: { more: 'x'.repeat(length) } }
  const value = { jsonrpc: '2.0', method: 'notifications/resources/updated', params }
  return { text: JSON.stringify(value), value }
}

function told(receivers: number, message: Message): Message[] {
  const messages: Message[] = []
  const all = new Set(Array.from({ length: receivers }, (_, n) => n))
  fanOut(all, message, (_, told) => messages.push(told))
  return messages
}

test('messages of a server pass unchanged, to one receiver or many', () => {
  const [large, small] = [updated(4 * 1024 ** 2), updated(10_000)]
  assert.deepEqual(told(1, large), [large])
  assert.deepEqual(told(100, small), Array<Message>(100).fill(small))
})

test('copies beyond 1 MiB in total are reduced to the parts agents act on', () => {
  for (const message of told(60, updated(20_000))) {
    assert.equal(
      message.text,
      '{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"a://b"}}',
    )
    assert.deepEqual(message.value, JSON.parse(message.text))
  }
})
