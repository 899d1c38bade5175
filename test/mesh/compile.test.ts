import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { Call, Outcome, Service } from '../../src/mesh/call.ts'
import { compileMesh } from '../../src/mesh/compile.ts'
import type { MeshConfig } from '../../src/mesh/settings.ts'
import { toolCall } from '../support/caller.ts'
import { testPolicyContext } from '../support/policy-context.ts'
import { testTarget } from '../support/target.ts'

const answer: Outcome = {
  kind: 'answered',
  result: { text: '{}', value: {}, status: 200 },
  verdict: 'unchecked',
}

/** Policies in order; the last applies to attempts. */
const order = ['deadline', 'retry', 'bulkhead', 'breaker', 'attemptTimeout']

const facts = { inputSchema: {}, outputSchema: undefined, fingerprint: '' }

/** A mesh whose layers record each call, as `name(settings)`. */
function recordedMesh(
  config: Partial<MeshConfig>,
  names: readonly string[] = order,
  listed: readonly string[] = [],
  noteAttempts = false,
) {
  const passed: string[] = []
  let built = 0
  const noting = (label: string) => (next: Service) => (call: Call) => {
    passed.push(label)
    return next(call)
  }
  const build = (name: string) => (settings: unknown) => {
    built++
    return noting(`${name}(${JSON.stringify(settings)})`)
  }
  const perAttempt = { perAttempt: true } as const
  const policies = Object.fromEntries(
    names.map((name) => [name, { build: build(name), ...(name === 'attemptTimeout' ? perAttempt : {}) }]),
  )
  const mesh = compileMesh({
    policies,
    config: { defaults: {}, overrides: [], ...config },
    context: testPolicyContext(),
    servers: { get: () => testTarget({ facts: (tool) => (listed.includes(tool) ? facts : undefined) }) },
    readdress: () => undefined,
    faults: { client: (next) => next, upstream: (next) => next },
    attempt: noteAttempts ? noting('attempt') : (next) => next,
    observe: noting('observe'),
    transport: () => (passed.push('transport'), Promise.resolve(answer)),
  })
  return {
    mesh,
    builds: () => built,
    /** Returns the layers that a call passes. */
    async way(server: string, tool: string, set?: string): Promise<string[]> {
      passed.length = 0
      assert.equal(await mesh.serviceFor(server, 'tools/call', tool, set)(toolCall(tool)), answer)
      return [...passed]
    },
  }
}

test('layers stand in the order of the policies, whatever order the config has', async () => {
  const defaults = Object.fromEntries(order.toReversed().map((name) => [name, {}]))
  const { way } = recordedMesh({ defaults })
  assert.deepEqual(await way('s', 't'), ['observe', ...order.map((name) => `${name}({})`), 'transport'])
})

test('a name without a policy is skipped, and so is a policy without settings', async () => {
  const { way } = recordedMesh({ defaults: { deadline: {}, breaker: {} } }, ['deadline', 'retry'])
  assert.deepEqual(await way('s', 't'), ['observe', 'deadline({})', 'transport'])
})

test('the last matching override with a setting for a policy decides about the policy', async () => {
  const { way } = recordedMesh({
    defaults: { retry: 0, breaker: 0, deadline: 0 },
    overrides: [
      { match: { server: 'search' }, retry: 1, breaker: 1 },
      { match: { tool: 'query_*' }, retry: 2 },
      { match: { server: 'other' }, retry: 3 },
    ],
  })
  assert.deepEqual((await way('search', 'query_all')).slice(1, -1), ['deadline(0)', 'retry(2)', 'breaker(1)'])
  assert.deepEqual((await way('search', 'write')).slice(1, -1), ['deadline(0)', 'retry(1)', 'breaker(1)'])
  assert.deepEqual((await way('third', 'write')).slice(1, -1), ['deadline(0)', 'retry(0)', 'breaker(0)'])
})

test('`false` switches a policy off, and a later override switches it on again', async () => {
  const { way } = recordedMesh({
    defaults: { retry: 0, breaker: false },
    overrides: [
      { match: { server: 's*' }, retry: false },
      { match: { server: 'search' }, retry: 2 },
    ],
  })
  assert.deepEqual((await way('store', 't')).slice(1, -1), [])
  assert.deepEqual((await way('search', 't')).slice(1, -1), ['retry(2)'])
  assert.deepEqual((await way('other', 't')).slice(1, -1), ['retry(0)'])
})

test('requests to a server share one service, which is built at the first use; listed tools have their own', () => {
  const { mesh, builds } = recordedMesh({ defaults: { retry: 0 } }, order, ['listed', 'other'])
  assert.equal(builds(), 0)
  const service = mesh.serviceFor('a', 'tools/call', 'invented')
  assert.equal(mesh.serviceFor('a', 'ping', undefined), service)
  assert.equal(mesh.serviceFor('a', 'tools/call', 'invented too'), service)
  const listed = mesh.serviceFor('a', 'tools/call', 'listed')
  assert.equal(mesh.serviceFor('a', 'tools/call', 'listed'), listed)
  assert.equal(new Set([service, listed, mesh.serviceFor('a', 'tools/call', 'other')]).size, 3)
  assert.notEqual(mesh.serviceFor('b', 'ping', undefined), service)
  assert.equal(builds(), 4)
})

test('settings of a policy set win over defaults and overrides, and sets share nothing', async () => {
  const { mesh, way } = recordedMesh({
    defaults: { retry: 0, breaker: 0 },
    overrides: [{ match: { server: 's' }, retry: 1, breaker: 1 }],
    sets: { cautious: { retry: false, deadline: 2 } },
  })
  assert.deepEqual((await way('s', 't', 'cautious')).slice(1, -1), ['deadline(2)', 'breaker(1)'])
  assert.deepEqual((await way('s', 't')).slice(1, -1), ['retry(1)', 'breaker(1)'])
  assert.notEqual(
    mesh.serviceFor('s', 'ping', undefined, 'cautious'),
    mesh.serviceFor('s', 'ping', undefined),
  )
  assert.equal(mesh.chainFor('s', 'ping', undefined, 'cautious')[1]?.from, 'set cautious')
  assert.throws(() => mesh.serviceFor('s', 'ping', undefined, 'bold'), /no policy set "bold"/)
})

test('each attempt is seen between the breaker and the timeout, whether there are policies or not', async () => {
  const defaults = { breaker: 0, attemptTimeout: 0 }
  const seen = await recordedMesh({ defaults }, order, [], true).way('s', 't')
  assert.deepEqual(seen, ['observe', 'breaker(0)', 'attempt', 'attemptTimeout(0)', 'transport'])
  assert.deepEqual(await recordedMesh({}, order, [], true).way('s', 't'), ['observe', 'attempt', 'transport'])
})

test('a chain names the source of each setting', () => {
  const { mesh } = recordedMesh({
    defaults: { deadline: { total: 5 }, retry: { maxRetries: 2 } },
    overrides: [
      { match: { tool: 'a*' }, retry: { maxRetries: 1 } },
      { match: { tool: 'ab*' }, retry: { maxRetries: 0 }, deadline: false },
    ],
  })
  const last = { layer: 'transport' }
  assert.deepEqual(mesh.chainFor('s', 'tools/call', 'x'), [
    { layer: 'observe' },
    { layer: 'deadline', config: { total: 5 }, from: 'default' },
    { layer: 'retry', config: { maxRetries: 2 }, from: 'default' },
    last,
  ])
  assert.deepEqual(mesh.chainFor('s', 'tools/call', 'abc'), [
    { layer: 'observe' },
    { layer: 'retry', config: { maxRetries: 0 }, from: 'override 1' },
    last,
  ])
})

test('fields of a call that could run together are kept apart', () => {
  const { mesh } = recordedMesh({ overrides: [{ match: { tool: 'c' }, retry: 1 }] })
  assert.notEqual(mesh.serviceFor('a', 'b', 'c'), mesh.serviceFor('a', 'b\nc', undefined))
  assert.notEqual(mesh.serviceFor('a', 'b', 'c'), mesh.serviceFor('a', 'b\nc', ''))
})
