import assert from 'node:assert/strict'
import { test } from 'node:test'
import { isNamed, stepOf, taskOf } from '../../src/protocol/task.ts'
import { newCall, TestCaller } from '../support/caller.ts'

const TRACE = '0af7651916cd43dd8448eb211c80319c'
const traceparent = `00-${TRACE}-b7ad6b7169203331-01`

/** Returns the task of a call with this `_meta` and these headers, of an agent without a session. */
function found(meta: unknown, inbound: Record<string, string | string[]> = {}, session = false) {
  const caller = new TestCaller({ era: session ? 'legacy' : 'modern' })
  const call = newCall({
    method: 'tools/call',
    params: { name: 't', ...(meta === undefined ? {} : { _meta: meta }) },
    inbound,
    caller,
  })
  const task = taskOf(call)
  return task && [task.source, task.id === caller.id ? 'caller' : task.id]
}

test('every source of a task name is known', () => {
  assert.deepEqual(found({ 'dev.breakwater/intent': 'a' }), ['meta', 'a'])
  assert.deepEqual(found({ baggage: 'x=1, breakwater.intent=two%20words;p=1,y=2' }), ['baggage', 'two words'])
  assert.deepEqual(found({}, { baggage: 'breakwater.intent=b' }), ['baggage', 'b'])
  const conversation = { baggage: 'gen_ai.conversation.id=c%2F1,gen_ai.agent.name=planner' }
  assert.deepEqual(found(conversation), ['conversation', 'c/1'])
  assert.deepEqual(found({}, conversation), ['conversation', 'c/1'])
  assert.deepEqual(found({ traceparent }), ['trace', TRACE])
  assert.deepEqual(found(undefined, { 'x-breakwater-intent': 'h' }), ['header', 'h'])
  assert.deepEqual(found(undefined, {}, true), ['session', 'caller'])
  assert.equal(found(undefined), undefined)
})

test('the most reliable source of a task name wins', () => {
  const inbound = { baggage: 'breakwater.intent=b', 'x-breakwater-intent': 'h' }
  const all = { 'dev.breakwater/intent': 'a', traceparent }
  assert.deepEqual(found(all, inbound, true), ['meta', 'a'])
  assert.deepEqual(found({ traceparent }, inbound, true), ['baggage', 'b'])
  const conversation = { baggage: 'gen_ai.conversation.id=c' }
  assert.deepEqual(found({ ...conversation, traceparent }, inbound), ['baggage', 'b'])
  assert.deepEqual(found({ ...conversation, traceparent }), ['conversation', 'c'])
  assert.deepEqual(found({ traceparent }, { 'x-breakwater-intent': 'h' }, true), ['trace', TRACE])
  assert.deepEqual(found({}, { 'x-breakwater-intent': 'h' }, true), ['header', 'h'])
  assert.deepEqual(found({ baggage: 'breakwater.intent=own' }, inbound), ['baggage', 'own'])
})

test('a value that names no task is skipped', () => {
  for (const name of ['', 7, null, {}, ['a'], 'x'.repeat(257)])
    assert.equal(found({ 'dev.breakwater/intent': name }), undefined)
  for (const meta of [null, 'text', [], 7]) assert.equal(found(meta), undefined)
  for (const baggage of [
    'breakwater.intent',
    'breakwater.intent=',
    'breakwater.intent=%',
    'other.breakwater.intent=a',
    `${'a=b,'.repeat(3_000)}breakwater.intent=c`,
    7,
  ])
    assert.equal(found({ baggage }), undefined)
  for (const traceparent of ['', 'x', `00-${'0'.repeat(32)}-b7ad6b7169203331-01`, 7])
    assert.equal(found({ traceparent }), undefined)
  assert.equal(found(undefined, { 'x-breakwater-intent': ['a', 'b'] }), undefined)
})

test('random names are distinguished from names that an agent gives', () => {
  for (const source of ['meta', 'baggage', 'header'] as const)
    assert.equal(isNamed({ id: 'a', source }), true)
  for (const source of ['conversation', 'trace', 'session'] as const)
    assert.equal(isNamed({ id: 'a', source }), false)
})

test('a step is a whole number from 0', () => {
  const of = (step: unknown) =>
    stepOf(newCall({ method: 'tools/call', params: { name: 't', _meta: { 'dev.breakwater/step': step } } }))
  assert.deepEqual([0, 7].map(of), [0, 7])
  for (const none of [-1, 1.5, '1', null, undefined, 2 ** 60]) assert.equal(of(none), undefined)
})
