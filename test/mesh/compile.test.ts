import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { Call, Outcome, Service } from '../../src/mesh/call.ts'
import { compileMesh, order, type LayerName, type MeshConfig } from '../../src/mesh/compile.ts'
import { toolCall } from '../support/caller.ts'
import { testKit } from '../support/kit.ts'

const answer: Outcome = {
  kind: 'answered',
  result: { text: '{}', value: {}, status: 200 },
  verdict: 'unchecked',
}

/** A mesh whose layers write down that a call passed, as `name(settings)`. */
function recordedMesh(config: Partial<MeshConfig>, names: readonly LayerName[] = order) {
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
  const policies = Object.fromEntries(names.toReversed().map((name) => [name, { build: build(name) }]))
  const mesh = compileMesh({
    policies,
    config: { defaults: {}, overrides: [], ...config },
    kit: testKit(),
    observe: noting('observe'),
    transport: () => (passed.push('transport'), Promise.resolve(answer)),
  })
  return {
    mesh,
    builds: () => built,
    /** What a call passes on its way. */
    async way(server: string, tool: string): Promise<string[]> {
      passed.length = 0
      assert.equal(await mesh.serviceFor(server, 'tools/call', tool)(toolCall(tool)), answer)
      return [...passed]
    },
  }
}

test('layers stand in our order, whatever order the config has', async () => {
  const defaults = Object.fromEntries(order.toReversed().map((name) => [name, {}]))
  const { way } = recordedMesh({ defaults })
  assert.deepEqual(await way('s', 't'), ['observe', ...order.map((name) => `${name}({})`), 'transport'])
})

test('a name without a policy is skipped, and so is a policy without settings', async () => {
  const { way } = recordedMesh({ defaults: { deadline: {}, breaker: {} } }, ['deadline', 'retry'])
  assert.deepEqual(await way('s', 't'), ['observe', 'deadline({})', 'transport'])
})

test('of the overrides that match, the last that sets a policy decides about it', async () => {
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

test('calls with the same settings share one service, which is built at the first use', () => {
  const { mesh, builds } = recordedMesh({
    defaults: { retry: 0 },
    overrides: [
      { match: { server: 'search' }, retry: 1 },
      { match: { server: 'unused' }, retry: 2 },
    ],
  })
  assert.equal(builds(), 0)
  const service = mesh.serviceFor('a', 'tools/call', 't')
  assert.equal(mesh.serviceFor('b', 'ping', undefined), service)
  assert.equal(mesh.serviceFor('a', 'tools/call', 't'), service)
  assert.notEqual(mesh.serviceFor('search', 'tools/call', 't'), service)
  assert.equal(builds(), 2)
})

test('a chain tells of each setting where it came from', () => {
  const { mesh } = recordedMesh({
    defaults: { deadline: { total: 5 }, retry: { attempts: 2 } },
    overrides: [
      { match: { tool: 'a*' }, retry: { attempts: 1 } },
      { match: { tool: 'ab*' }, retry: { attempts: 0 }, deadline: false },
    ],
  })
  const last = { layer: 'transport' }
  assert.deepEqual(mesh.chainFor('s', 'tools/call', 'x'), [
    { layer: 'observe' },
    { layer: 'deadline', config: { total: 5 }, from: 'default' },
    { layer: 'retry', config: { attempts: 2 }, from: 'default' },
    last,
  ])
  assert.deepEqual(mesh.chainFor('s', 'tools/call', 'abc'), [
    { layer: 'observe' },
    { layer: 'retry', config: { attempts: 0 }, from: 'override 1' },
    last,
  ])
})

test('fields of a call that could run together are kept apart', () => {
  const { mesh } = recordedMesh({ overrides: [{ match: { tool: 'c' }, retry: 1 }] })
  assert.notEqual(mesh.serviceFor('a', 'b', 'c'), mesh.serviceFor('a', 'b\nc', undefined))
  assert.notEqual(mesh.serviceFor('a', 'b', 'c'), mesh.serviceFor('a', 'b\nc', ''))
})
