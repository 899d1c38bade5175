import assert from 'node:assert/strict'
import { test } from 'node:test'
import { baggageOf, withoutBaggage } from '../../src/protocol/baggage.ts'
import { isStillBytes, largeMessage } from '../support/large-message.ts'

const KEYS = new Set(['gen_ai.agent.name', 'gen_ai.conversation.id'])

const read = (own: unknown, header?: string) => {
  const _meta = own === undefined ? {} : { baggage: own }
  const inbound = header === undefined ? {} : { baggage: header }
  const found = baggageOf({ message: { value: { params: { _meta } } }, inbound }, KEYS)
  return found && Object.fromEntries(found)
}

test('allowed keys of baggage are read and decoded, first from _meta and then from the header', () => {
  const own = 'x=1, gen_ai.agent.name = J%C3%BCrgen%2C%20the%20agent ;p=1,user.id=7'
  const name = { 'gen_ai.agent.name': 'Jürgen, the agent' }
  assert.deepEqual(read(own), name)
  const header = 'gen_ai.agent.name=other,gen_ai.conversation.id=c-1'
  assert.deepEqual(read(own, header), { ...name, 'gen_ai.conversation.id': 'c-1' })
  assert.equal(read(undefined), undefined)
})

test('a value may hold what stands between names and values', () => {
  const id = (text: string) => read(`x=1,gen_ai.conversation.id=${text};p=1`)
  for (const value of ['dGFzay0x==', 'user=1&task=7', '=', '%3D='])
    assert.deepEqual(id(value), { 'gen_ai.conversation.id': decodeURIComponent(value) })
  assert.deepEqual(read('gen_ai.conversation.id'), {})
})

test('malformed and overlong baggage is skipped, measured in bytes and not in characters', () => {
  const name = (value: string) => read(`gen_ai.agent.name=${value}`)
  for (const none of ['', '%', '%ff', encodeURIComponent('ü'.repeat(129)), 'x'.repeat(257)])
    assert.deepEqual(name(none), {}, none.slice(0, 9))
  assert.deepEqual(name('x'.repeat(256)), { 'gen_ai.agent.name': 'x'.repeat(256) })
  // Baggage above the length limit yields nothing.
  assert.deepEqual(read(`gen_ai.agent.name=a,x=${'y'.repeat(8_192)}`), {})
  assert.deepEqual(read(`gen_ai.agent.name=a,x=${'€'.repeat(3_000)}`), {})
  for (const odd of [7, null, {}, ['gen_ai.agent.name=a']]) assert.deepEqual(read(odd), {})
})

test('a message loses its baggage, even duplicated or disguised, and no other byte', () => {
  const bare = (meta: string) => {
    const text = `{"jsonrpc":"2.0", "id":1e0,"params":{"name":"t","_meta":${meta}}}`
    const message = { text, value: JSON.parse(text) as Record<string, unknown> }
    const left = withoutBaggage(message)
    assert.deepEqual(JSON.parse(left.text), left.value)
    return left === message ? 'the same' : /"_meta":(.*)\}\}$/.exec(left.text)?.[1]
  }
  assert.equal(bare('{ "baggage":"a=b" }'), '{  }')
  assert.equal(bare('{"a": 1,"baggage":"a=b"}'), '{"a": 1}')
  assert.equal(bare('{"baggage":"a=b", "a": 1}'), '{"a": 1}')
  assert.equal(
    bare('{"baggage":1,"a":{"baggage":2},"baggage":3,"b":4,"baggage":5,"baggage":6}'),
    '{"a":{"baggage":2},"b":4}',
  )
  assert.equal(bare('{"bagg\\u0061ge":"a=b","a":1}'), '{"a":1}')
  assert.equal(bare('{"a":1}'), 'the same')
  assert.equal(bare('null'), 'the same')
})

test('a large message loses its baggage without being read as a whole', () => {
  const long = 'x'.repeat(100_000)
  const text = (meta: string) => `{"id":1,"params":{"arguments":{"a":"${long}"},"_meta":{${meta}}}}`
  const left = withoutBaggage(largeMessage(text('"baggage":"a=b","b":1')))
  assert.ok(isStillBytes(left))
  assert.equal(left.text, text('"b":1'))
})
