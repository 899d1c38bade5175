import assert from 'node:assert/strict'
import { test } from 'node:test'
import { AggregateEndpoint, ServerEndpoint } from '../../src/downstream/endpoints.ts'
import type { Endpoint } from '../../src/downstream/endpoint.ts'
import type { Outcome } from '../../src/mesh/call.ts'
import { compileMesh } from '../../src/mesh/compile.ts'
import { gatewayError } from '../../src/mesh/errors.ts'
import type { GatewayGeneration } from '../../src/registry/generation.ts'
import { testPolicyContext } from '../support/policy-context.ts'
import type { Json } from '../support/memory-pipe.ts'
import { noFaults } from '../support/no-faults.ts'
import { ScriptedUpstream } from '../support/scripted-upstream.ts'
import { mcpRequest, read, testGeneration } from './test-generation.ts'
import { breakerOpen } from '../../src/policies/breaker/state-machine.ts'

/** Returns the answers of both fronts to a call of tool `t` at server `s` with this outcome. */
async function answers(outcome: (id: unknown) => Outcome, settings: Json = {}, params: Json = {}) {
  const { generation, clock } = await testGeneration({ s: new ScriptedUpstream() }, { s: settings })
  const mesh = compileMesh({
    policies: {},
    config: { defaults: {}, overrides: [] },
    context: testPolicyContext(clock),
    servers: generation.servers,
    readdress: () => undefined,
    observe: (next) => next,
    attempt: (next) => next,
    faults: noFaults,
    transport: ({ id }) => Promise.resolve(outcome(id)),
  })
  const serviceFor: GatewayGeneration['serviceFor'] = ({ server, method, tool }) =>
    mesh.serviceFor(server, method, tool)
  const endpoints: [Endpoint, string][] = [
    [new ServerEndpoint('s'), 't'],
    [new AggregateEndpoint(clock), 's__t'],
  ]
  return Promise.all(
    endpoints.map(async ([endpoint, name]) => {
      const { request } = mcpRequest('tools/call', { name, ...params })
      return read(await endpoint.request({ ...generation, mesh, serviceFor }, request))
    }),
  )
}

function answered(id: unknown, result: Json): Outcome {
  const value = { jsonrpc: '2.0', id, result }
  const partial = { source: 'fallback', reason: 'answered by b', notice: true } as const
  const verdict = 'unchecked'
  return { kind: 'answered', result: { text: JSON.stringify(value), value, status: 200 }, verdict, partial }
}

test('a partial reply is flagged whichever way it leaves', async () => {
  for (const { id, result } of await answers((id) => answered(id, { content: [] }))) {
    assert.equal(id, 7)
    assert.deepEqual(result, {
      _meta: { 'dev.breakwater/partial': { source: 'fallback', reason: 'answered by b' } },
      content: [{ type: 'text', text: '[partial result] answered by b' }],
    })
  }
})

test('a partial reply that refers to a resource has both its flag and the name that the aggregate gives', async () => {
  const link = { type: 'resource_link', uri: 'file:///a', name: 'a' }
  const [alone, together] = await answers((id) => answered(id, { content: [link] }))
  assert.deepEqual((alone?.result?.content as Json[])[0], link)
  assert.deepEqual((together?.result?.content as Json[])[0], {
    ...link,
    uri: 'breakwater://s/file:///a',
  })
  assert.ok('dev.breakwater/partial' in (together?.result?._meta as Json))
})

const rejected = (): Outcome => ({
  kind: 'rejected',
  error: gatewayError(breakerOpen, 'breaker open'),
  by: 'breaker',
})

test('errors of the gateway are delivered as the server is set: protocol errors unless told otherwise', async () => {
  for (const { error, result } of await answers(rejected)) {
    assert.equal(error?.data?.reason, 'breaker_open')
    assert.equal(result, undefined)
  }
  for (const { error, result } of await answers(rejected, { deliver: 'tool_result' })) {
    assert.equal(error, undefined)
    assert.equal(result?.isError, true)
    assert.equal(((result?._meta as Json)['dev.breakwater/error'] as Json).reason, 'breaker_open')
  }
})

test('a call that runs as a task gets a protocol error: nobody expects a tool result', async () => {
  for (const { error } of await answers(rejected, { deliver: 'tool_result' }, { task: {} }))
    assert.equal(error?.code, 1503)
})
