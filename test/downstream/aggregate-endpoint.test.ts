import assert from 'node:assert/strict'
import { test } from 'node:test'
import { AggregateEndpoint } from '../../src/downstream/endpoints.ts'
import { gatewayError } from '../../src/mesh/errors.ts'
import type { Json } from '../support/memory-pipe.ts'
import { initializeResult, plainTool, ScriptedUpstream, type Script } from '../support/scripted-upstream.ts'
import { mcpRequest, read, testGeneration } from './test-generation.ts'
import { message } from './test-session.ts'

/** A server with these tools, which echoes its requests to the caller. */
const mirror =
  (...tools: string[]): Script =>
  (method, params) => {
    const lists = {
      tools: tools.map(plainTool),
      prompts: [],
      resources: [],
      resourceTemplates: [],
    }
    return { result: method.endsWith('/list') ? lists : { method, params } }
  }

async function setUp(
  upstreams: Readonly<Record<string, ScriptedUpstream>>,
  settings?: Readonly<Record<string, Json>>,
) {
  const { generation, clock } = await testGeneration(upstreams, settings)
  const endpoint = new AggregateEndpoint(clock)
  return {
    generation,
    endpoint,
    clock,
    ask: async (method: string, params?: Json, more: Parameters<typeof mcpRequest>[2] = {}) =>
      read(await endpoint.request(generation, mcpRequest(method, params, more).request)),
  }
}

test('a call goes to the server that its name says, under the name that this server knows', async () => {
  const { ask } = await setUp({ a: new ScriptedUpstream(mirror('t')), b: new ScriptedUpstream(mirror('t')) })
  const { id, result } = await ask('tools/call', { name: 'b__t', arguments: { name: 'b__t' } })
  assert.equal(id, 7)
  assert.deepEqual(result, { method: 'tools/call', params: { name: 't', arguments: { name: 'b__t' } } })
})

test('a list covers all servers, and a foreign cursor is refused', async () => {
  const { ask } = await setUp({ a: new ScriptedUpstream(mirror('x')), b: new ScriptedUpstream(mirror('y')) })
  assert.deepEqual((await ask('tools/list')).result, { tools: ['a__x', 'b__y'].map(plainTool) })
  for (const cursor of ['forged', 7, null])
    assert.equal((await ask('tools/list', { cursor })).error?.code, -32602)
})

test('a name no server has is unknown, with an error text for models', async () => {
  const { ask } = await setUp({ a: new ScriptedUpstream(mirror('x')), b: new ScriptedUpstream() })
  for (const [method, params, text] of [
    ['tools/call', { name: 'c__x' }, 'Unknown tool: c__x (servers: a, b)'],
    ['tools/call', { name: 'x' }, 'Unknown tool: x (servers: a, b)'],
    ['tools/call', { name: 7 }, 'Unknown tool: it has no name (servers: a, b)'],
    ['prompts/get', { name: 'p' }, 'Unknown prompt: p (servers: a, b)'],
    ['resources/read', { uri: 'file:///x' }, 'Unknown reference: file:///x (servers: a, b)'],
    ['tools/call', { name: 'x'.repeat(300) }, `Unknown tool: ${'x'.repeat(200)} (servers: a, b)`],
  ] as const) {
    assert.deepEqual((await ask(method, params)).error, { code: -32602, message: text })
  }
})

test('an unknown method is not found, whatever its name', async () => {
  const { ask } = await setUp({ a: new ScriptedUpstream() })
  for (const method of ['initialized', 'tasks/list', '', 'constructor', '__proto__', 'toString']) {
    assert.equal((await ask(method)).error?.code, -32601, method)
  }
  assert.ok(((await ask('x'.repeat(100_000))).error?.message.length ?? 0) < 1_000)
})

test('a tool that the config hides is neither listed nor called', async () => {
  const { ask } = await setUp(
    { a: new ScriptedUpstream(mirror('x', 'hidden')) },
    { a: { tools: { exclude: ['hid*'] } } },
  )
  assert.deepEqual((await ask('tools/list')).result?.tools, [plainTool('a__x')])
  assert.match(
    (await ask('tools/call', { name: 'a__hidden' })).error?.message ?? '',
    /^Unknown tool: a__hidden/,
  )
})

test('an error of the gateway names its server and tool', async () => {
  const upstream = new ScriptedUpstream((method, params, upstreamSession) =>
    method === 'tools/call'
      ? gatewayError('session_lost', 'gone', { sent: true })
      : mirror('x')(method, params, upstreamSession),
  )
  const { endpoint, generation } = await setUp({ a: upstream })
  const response = await endpoint.request(generation, mcpRequest('tools/call', { name: 'a__x' }).request)
  assert.equal(response.status, 200)
  const { error } = read(response)
  assert.equal(error?.message, 'a/x: gone; it may have run')
  assert.equal(error?.data?.reason, 'session_lost')
})

test('a level of logging goes to all servers that log and are up', async () => {
  const [logs, silent, down] = [new ScriptedUpstream(), new ScriptedUpstream(), new ScriptedUpstream()]
  silent.initializeResult = initializeResult({ tools: {} })
  down.refusal = gatewayError('upstream_unavailable', 'x')
  const { ask } = await setUp({ logs, silent, down })
  assert.deepEqual((await ask('logging/setLevel', { level: 'debug' })).result, {})
  assert.deepEqual(logs.upstreamSessions.at(-1)?.calls[0]?.message.value.params, { level: 'debug' })
  assert.ok(silent.upstreamSessions.every(({ asked }) => !asked.includes('logging/setLevel')))
  assert.equal(down.upstreamSessions.length, 0)
})

test('the welcome has the version that was agreed on, and what servers say about themselves', async () => {
  const [talks, mute] = [new ScriptedUpstream(), new ScriptedUpstream()]
  talks.initializeResult = initializeResult({}, { instructions: 'Use me. '.repeat(1_000) })
  const { endpoint, generation } = await setUp({ talks, mute })
  const welcome = await endpoint.welcome(generation, mcpRequest('x').caller, '2025-06-18')
  assert.ok('text' in welcome)
  const { protocolVersion, instructions, serverInfo } = JSON.parse(welcome.text) as Record<string, unknown>
  assert.equal(protocolVersion, '2025-06-18')
  assert.equal((serverInfo as Json).name, 'breakwater')
  assert.equal(instructions, `# talks\n${'Use me. '.repeat(500)}`)
})

test('notifications of the agent reach the servers that it talks to, and no other', async () => {
  const [a, b] = [new ScriptedUpstream(mirror('x')), new ScriptedUpstream()]
  const { endpoint, generation } = await setUp({ a, b })
  const { request, caller } = mcpRequest('tools/call', { name: 'a__x' })
  await endpoint.request(generation, request)
  const changed = message({ method: 'notifications/roots/list_changed' })
  endpoint.notify(generation, caller, changed)
  assert.deepEqual(
    a.upstreamSessions.map(({ posts }) => posts),
    [[], [changed.text]],
  )
  assert.ok(b.upstreamSessions.every(({ posts }) => posts.length === 0))
})

test('changes of lists are told by the catalog, and other messages in the words of the aggregate', async () => {
  const { endpoint, generation } = await setUp({ a: new ScriptedUpstream() })
  assert.equal(
    endpoint.inbound(generation, 'a', message({ method: 'notifications/tools/list_changed' })),
    undefined,
  )
  // Only a notification with the exact name changes a list.
  for (const other of [
    message({ id: 1, method: 'notifications/tools/list_changed' }),
    message({ method: 'notifications/other/list_changed' }),
  ])
    assert.equal(endpoint.inbound(generation, 'a', other), other)
  const updated = endpoint.inbound(
    generation,
    'a',
    message({ method: 'notifications/resources/updated', params: { uri: 'x' } }),
  )
  assert.deepEqual(updated?.value.params, { uri: 'breakwater://a/x' })
})
