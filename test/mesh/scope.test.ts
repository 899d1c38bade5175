import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { Effect } from '../../src/mesh/policy.ts'
import { scopeFor } from '../../src/mesh/compile.ts'
import { newCall, TestCaller, toolCall } from '../support/caller.ts'
import { testTarget } from '../support/target.ts'

const back = Promise.resolve(true)
const facts = { inputSchema: {}, outputSchema: {}, fingerprint: '1' }

function scope(
  effect: Effect | undefined,
  said: Effect = 'unknown',
  tool: string | undefined = 't',
  server = 's',
) {
  return scopeFor({
    set: 'default',
    server,
    tool,
    overrides: undefined,
    effect,
    servers: new Map([
      [
        's',
        testTarget({
          endpoints: ['a', 'b', 'c'],
          facts: () => facts,
          effectOf: () => said,
          home: () => 2,
          isLost: (replica) => replica === 1,
          reached: (replica) => (replica === 1 ? back : undefined),
        }),
      ],
    ]),
    fallbackCall: () => undefined,
  })
}

test('the effect that the operator gives a tool wins over the annotations of its server', () => {
  assert.equal(scope('write', 'read_only').effectOf(toolCall('t')), 'write')
  assert.equal(scope(undefined, 'read_only').effectOf(toolCall('t')), 'read_only')
  assert.equal(scope(undefined).effectOf(toolCall('t')), 'unknown')
})

test('the protocol defines the effect of other requests, and unknown requests may do anything', () => {
  const effectOf = (method: string) => scope('write').effectOf(newCall({ method }))
  assert.equal(effectOf('resources/read'), 'read_only')
  assert.equal(effectOf('logging/setLevel'), 'idempotent')
  assert.equal(effectOf('vendor/delete'), 'unknown')
  for (const inherited of ['constructor', '__proto__', 'toString'])
    assert.equal(effectOf(inherited), 'unknown', inherited)
})

test('facts about the tool, its server and its callers come from the registry', () => {
  const known = scope(undefined)
  assert.equal(known.replicas, 3)
  assert.equal(known.facts(), facts)
  assert.equal(known.home(new TestCaller()), 2)
  assert.equal(scope(undefined, 'unknown', undefined).tool, 't')
})

test('the registry knows which replicas are lost, and tells when one is back', () => {
  const known = scope(undefined)
  assert.deepEqual(
    [0, 1, 2].map((replica) => known.isLost(replica)),
    [false, true, false],
  )
  assert.equal(known.reached(1), back)
  assert.equal(known.reached(0), undefined)
})

test('a server that has left the config has no lost replica, and no replica is waited for', () => {
  const gone = scope(undefined, 'unknown', 't', 'gone')
  assert.deepEqual([gone.isLost(1), gone.reached(1)], [false, undefined])
})
