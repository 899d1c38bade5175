import assert from 'node:assert/strict'
import { test } from 'node:test'
import { policies } from '../../../src/policies/index.ts'
import { MODERN_VERSION } from '../../../src/protocol/versions.ts'
import { TestCaller } from '../../support/caller.ts'
import { answered, retrying, tracedMesh, unavailable } from './traced-mesh.ts'

test('both spans say what was called, and what became of it, by the names of the conventions', async (t) => {
  const mesh = await tracedMesh(t, {
    settings: { ...retrying, deadline: policies.deadline.schema.parse({ total: '30s' }) },
    peer: { transport: 'tcp', address: '10.0.0.7', port: 8443, version: '2025-06-18' },
    upstream: ({ attempt }) => (attempt === 1 ? unavailable : answered()),
  })
  const inbound = { 'mcp-protocol-version': '2025-11-25', 'mcp-session-id': 'secret-session' }
  await mesh.run('look', { id: 'call-9', inbound })
  await mesh.spans()
  const [server] = mesh.receiver.of('server')
  const { 'mcp.session.id': session, ...attributes } = server?.attributes ?? {}
  assert.equal(server?.name, 'tools/call look')
  assert.deepEqual(attributes, {
    'mcp.method.name': 'tools/call',
    'mcp.protocol.version': '2025-11-25',
    'gen_ai.operation.name': 'execute_tool',
    'gen_ai.tool.name': 'look',
    'jsonrpc.request.id': 'call-9',
    'network.transport': 'tcp',
    'network.protocol.name': 'http',
    'breakwater.server': 'test',
    'breakwater.kept': 'sampled',
    'breakwater.attempts': 2,
    'breakwater.retries': 1,
    'breakwater.deadline_ms': 30_000,
    'breakwater.result': 'returned',
    'breakwater.verdict': 'unchecked',
  })
  assert.match(String(session), /^[0-9a-f]{16}$/)

  const [failed, second] = mesh.receiver.of('client')
  const common = {
    'mcp.method.name': 'tools/call',
    'mcp.protocol.version': '2025-06-18',
    'gen_ai.operation.name': 'execute_tool',
    'gen_ai.tool.name': 'look',
    'jsonrpc.request.id': 'call-9',
    'network.transport': 'tcp',
    'network.protocol.name': 'http',
    'server.address': '10.0.0.7',
    'server.port': 8443,
    'breakwater.server': 'test',
    'breakwater.replica': 0,
  }
  assert.deepEqual(failed?.attributes, {
    ...common,
    'breakwater.attempt': 1,
    'breakwater.deadline_ms': 30_000,
    'breakwater.result': 'transport_error',
    'error.type': 'upstream_unavailable',
  })
  assert.equal(failed?.message, 'connection refused')
  const { 'breakwater.deadline_ms': left, ...rest } = second?.attributes ?? {}
  assert.ok(Number(left) < 30_000)
  assert.deepEqual(rest, {
    ...common,
    'breakwater.attempt': 2,
    'breakwater.result': 'returned',
    'breakwater.verdict': 'unchecked',
  })
})

test('errors have the type that the conventions give them, and a description', async (t) => {
  const rpcError = { error: { code: -32602, message: 'no, hush' } }
  const cases = [
    [answered({ result: { isError: true } }, { verdict: 'tool_error' }), 'tool_error', undefined, /isError/],
    [answered(rpcError, { verdict: 'rpc_error' }), '-32602', '-32602', /^no, …$/],
    [answered({ error: { code: 'odd' } }, { verdict: 'rpc_error' }), 'rpc_error', undefined, /^$/],
    [answered({}, { verdict: 'schema_invalid' }), 'schema_invalid', undefined, /output schema/],
    [answered({}, { verdict: 'json_invalid' }), 'json_invalid', undefined, /JSON/],
    [answered({}, { verdict: 'partial_silent' }), 'partial_silent', undefined, /partial, without saying so/],
    [unavailable, 'upstream_unavailable', undefined, /^connection refused$/],
  ] as const
  for (const [outcome, type, code, description] of cases) {
    const mesh = await tracedMesh(t, { upstream: () => outcome })
    await mesh.run()
    for (const span of await mesh.spans()) {
      assert.equal(span.attributes['error.type'], type)
      assert.equal(span.attributes['rpc.response.status_code'], code)
      assert.equal(span.status, 'error')
      assert.match(span.message, description)
    }
  }
})

test('a modern request has no session, whatever its headers say', async (t) => {
  const mesh = await tracedMesh(t)
  const caller = new TestCaller({ era: 'modern' })
  // A later, unknown version has no session either.
  const later = { 'io.modelcontextprotocol/protocolVersion': '2027-01-01' }
  const inbound = { 'mcp-protocol-version': MODERN_VERSION, 'mcp-session-id': 'x' }
  await mesh.run('look', { caller, inbound })
  await mesh.run('look', { caller, inbound, params: { name: 'look', _meta: later } })
  await mesh.spans()
  const [server, newer] = mesh.receiver.of('server')
  assert.equal(server?.attributes['mcp.protocol.version'], MODERN_VERSION)
  assert.equal(server?.attributes['mcp.session.id'], undefined)
  assert.equal(newer?.attributes['mcp.protocol.version'], '2027-01-01')
  assert.equal(newer?.attributes['mcp.session.id'], undefined)
})

test('arguments and results are recorded where an operator asked for them, and only there', async (t) => {
  for (const payloads of [false, true]) {
    const mesh = await tracedMesh(t, {
      config: { payloads },
      upstream: () => answered({ result: { content: 'y'.repeat(10_000) } }),
    })
    await mesh.run('look', {}, { secret: 'x' })
    await mesh.spans()
    const attributes = mesh.receiver.of('server')[0]?.attributes ?? {}
    assert.equal(attributes['gen_ai.tool.call.arguments'], payloads ? '{"secret":"x"}' : undefined)
    assert.equal(String(attributes['gen_ai.tool.call.result'] ?? '').length, payloads ? 4_096 : 0)
  }
})

test('a tool that no server has names no span, however long its name and whatever is in it', async (t) => {
  const mesh = await tracedMesh(t)
  const hostile = `\ud800,"\n${'x'.repeat(1_000_000)}`
  await mesh.run('made_up')
  await mesh.run(hostile, { method: hostile })
  await mesh.spans()
  const [unlisted, long] = mesh.receiver.of('server')
  assert.equal(unlisted?.name, 'tools/call')
  assert.equal(unlisted?.attributes['gen_ai.tool.name'], 'made_up')
  assert.equal(long?.name.length, 256)
  assert.equal(String(long?.attributes['mcp.method.name']).length, 256)
})

test('an attempt that outlives its call is said to be abandoned', async (t) => {
  const hedge = policies.hedge.schema.parse({ after: 20 })
  const mesh = await tracedMesh(t, {
    settings: { hedge },
    upstream: ({ attempt }) => (attempt === 1 ? new Promise(() => undefined) : answered()),
  })
  await mesh.run()
  await mesh.spans()
  const [slow, quick] = mesh.receiver
    .of('client')
    .sort((a, b) => Number(a.attributes['breakwater.attempt']) - Number(b.attributes['breakwater.attempt']))
  assert.equal(slow?.attributes['breakwater.abandoned'], true)
  assert.equal(slow?.attributes['error.type'], 'cancelled')
  assert.equal(quick?.attributes['breakwater.abandoned'], undefined)
  assert.equal(mesh.receiver.of('server')[0]?.attributes['breakwater.hedges'], 1)
})

test('the service is called breakwater', async (t) => {
  const mesh = await tracedMesh(t)
  await mesh.run()
  const [span] = await mesh.spans()
  assert.equal(span?.resource['service.name'], 'breakwater')
  assert.equal(span?.resource['service.version'], '1.2.3')
  assert.equal(span?.resource['process.command_args'], undefined)
})
