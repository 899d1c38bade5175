import assert from 'node:assert/strict'
import { test } from 'node:test'
import { drawKeyOf, Identities } from '../../../src/chaos/decide/call-key.ts'
import { derive } from '../../../src/mesh/call.ts'
import { newCall, toolCall } from '../../support/caller.ts'

const intent = (id: string, args: object, name = 'tool') =>
  newCall({
    method: 'tools/call',
    params: { name, arguments: args, _meta: { 'dev.breakwater/intent': id, progressToken: Math.PI } },
  })

test('a call is known by its intent, tool, arguments and occurrence, whatever the order of keys', () => {
  const ids = new Identities()
  const first = ids.of(intent('i', { a: 1, b: { c: 2, d: 3 } }))
  assert.equal(first.intent, 'i')
  assert.equal(first.orderDependent, false)
  const others = [intent('j', { a: 1 }), intent('i', { a: 2 }), intent('i', { a: 1 }, 'other')].map(
    (c) => ids.of(c).key,
  )
  assert.equal(new Set([first.key, ...others]).size, 4)
  const again = new Identities().of(intent('i', { b: { d: 3, c: 2 }, a: 1 }))
  assert.equal(again.key, first.key)
})

test('a repeated call is another occurrence; another attempt belongs to the same occurrence', () => {
  const ids = new Identities()
  const call = intent('i', { a: 1 })
  const first = ids.of(call)
  assert.equal(ids.of(derive(call, { attempt: 2 })), first)
  assert.notEqual(ids.of(intent('i', { a: 1 })).key, first.key)
  assert.notEqual(drawKeyOf(first, 1, false), drawKeyOf(first, 2, false))
  assert.equal(drawKeyOf(first, 1, true), drawKeyOf(first, 2, true))
})

test('twins in two arms of an experiment are the same call, however often the other arm has made the call', () => {
  const ids = new Identities()
  const keyIn = (arm: string) => {
    const call = intent('i', { a: 1 })
    call.record.arm = arm
    return ids.of(call).key
  }
  const control = [1, 2, 3].map(() => keyIn('canary/control'))
  assert.equal(new Set(control).size, 3)
  assert.deepEqual(
    [1, 2, 3].map(() => keyIn('canary/treatment')),
    control,
  )
  assert.equal(keyIn(''), control[0])
})

test('a fallback call is a separate call, though it shares the record', () => {
  const ids = new Identities()
  const call = toolCall('a', { x: 1 })
  const other = derive(call, { tool: 'b' })
  assert.notEqual(ids.of(call).key, ids.of(other).key)
  assert.equal(ids.of(call).key, ids.of(derive(call, {})).key)
})

test('without an intent, the tenant tells calls apart', () => {
  const keys = ['one', 'two'].map((tenant) => new Identities().of(toolCall('a', { x: 1 }, { tenant })).key)
  assert.notEqual(keys[0], keys[1])
})

test('requests that are no tool calls are known by method and params', () => {
  const read = (uri: string) =>
    newCall({ method: 'resources/read', params: { uri, _meta: { progressToken: uri } } })
  const ids = new Identities()
  assert.notEqual(ids.of(read('a:1')).key, ids.of(read('a:2')).key)
  assert.equal(new Identities().of(read('a:1')).key, new Identities().of(read('a:1')).key)
})

test('calls with too large or too deep arguments are keyed by arrival, and labelled so', () => {
  let deep: object = {}
  for (let depth = 0; depth < 200; depth++) deep = { deep }
  for (const args of [deep, { text: 'x'.repeat(300_000) }]) {
    assert.equal(new Identities().of(intent('i', args)).orderDependent, true)
  }
})
