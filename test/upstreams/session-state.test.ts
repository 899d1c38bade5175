import assert from 'node:assert/strict'
import { test } from 'node:test'
import { SessionState } from '../../src/upstreams/shared/session-state.ts'
import { newCall, toolCall } from '../support/caller.ts'

/** Returns the state a new session receives after these calls. */
function told(...calls: (readonly [string, Readonly<Record<string, unknown>>])[]) {
  const state = new SessionState()
  for (const [method, params] of calls) state.note(newCall({ method, params }))
  return [...state.requests()].map(({ method, params }) => [method, params.level ?? params.uri])
}

test('a session without requests leaves no state to repeat', () => {
  const state = new SessionState()
  state.note(toolCall('x', { uri: 'a', level: 'debug' }))
  assert.deepEqual([...state.requests()], [])
})

test('the last level and every subscription are told again', () => {
  assert.deepEqual(
    told(
      ['resources/subscribe', { uri: 'a' }],
      ['logging/setLevel', { level: 'debug' }],
      ['resources/subscribe', { uri: 'b' }],
      ['logging/setLevel', { level: 'error' }],
      ['resources/subscribe', { uri: 'a' }],
    ),
    [
      ['logging/setLevel', 'error'],
      ['resources/subscribe', 'b'],
      ['resources/subscribe', 'a'],
    ],
  )
})

test('a cancelled subscription is not repeated', () => {
  assert.deepEqual(
    told(
      ['resources/subscribe', { uri: 'a' }],
      ['resources/unsubscribe', { uri: 'a' }],
      ['resources/unsubscribe', { uri: 'b' }],
    ),
    [],
  )
})

test('a subscription without a URI does not count', () => {
  assert.deepEqual(told(['resources/subscribe', {}], ['resources/subscribe', { uri: 7 }]), [])
})

test('the oldest of very many subscriptions are forgotten', () => {
  const calls = Array.from({ length: 1_030 }, (_, n) => ['resources/subscribe', { uri: `${n}` }] as const)
  const found = told(...calls)
  assert.equal(found.length, 1_024)
  assert.deepEqual(
    [found[0], found.at(-1)],
    [
      ['resources/subscribe', '6'],
      ['resources/subscribe', '1029'],
    ],
  )
})
