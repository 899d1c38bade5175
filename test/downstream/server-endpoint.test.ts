import assert from 'node:assert/strict'
import { test } from 'node:test'
import { ServerEndpoint } from '../../src/downstream/endpoints.ts'
import { gatewayError } from '../../src/mesh/errors.ts'
import { TestCaller } from '../support/caller.ts'
import type { Json } from '../support/memory-pipe.ts'
import { initializeResult, ScriptedUpstream } from '../support/scripted-upstream.ts'
import { mcpRequest, read, testGeneration } from './test-generation.ts'
import { message } from './test-session.ts'

const tools = [{ name: 'read' }, { x: 1, name: 'write' }, { name: 'read_all' }]

async function setUp(upstream: ScriptedUpstream, settings: Json = {}) {
  const { generation } = await testGeneration({ s: upstream }, { s: settings })
  const endpoint = new ServerEndpoint('s')
  return {
    endpoint,
    generation,
    ask: async (method: string, params?: Json) =>
      endpoint.request(generation, mcpRequest(method, params).request),
  }
}

test('every method goes to the server as it is', async () => {
  const upstream = new ScriptedUpstream((method, params) => ({ result: { method, params } }))
  const { ask } = await setUp(upstream)
  for (const method of ['tools/call', 'tools/list', 'prompts/get', 'vendor/x', 'constructor', '']) {
    assert.deepEqual(read(await ask(method, { name: 'a__b' })).result, { method, params: { name: 'a__b' } })
  }
})

test("a list of tools is the server's own, without those that the config hides", async () => {
  const script = () => ({ result: { before: 1, tools, nextCursor: 'x' } })
  const { ask } = await setUp(new ScriptedUpstream(script))
  const whole = await ask('tools/list')
  assert.equal(whole.text, JSON.stringify({ jsonrpc: '2.0', id: 7, ...script() }))
  const hiding = await setUp(new ScriptedUpstream(script), { tools: { include: ['read*'] } })
  assert.equal(
    (await hiding.ask('tools/list')).text,
    '{"jsonrpc":"2.0","id":7,"result":{"before":1,"tools":[{"name":"read"},{"name":"read_all"}],"nextCursor":"x"}}',
  )
})

test('a tool that the config hides is unknown', async () => {
  const upstream = new ScriptedUpstream()
  const { ask } = await setUp(upstream, { tools: { exclude: ['write'] } })
  assert.deepEqual(read(await ask('tools/call', { name: 'write' })).error, {
    code: -32602,
    message: 'Unknown tool: write',
  })
  assert.ok(read(await ask('tools/call', { name: 'read' })).result)
  assert.equal(upstream.upstreamSessions.filter(({ asked }) => asked.includes('tools/call')).length, 1)
})

test('a session that is lost for good is an HTTP 404: the client has to begin anew', async () => {
  const { ask } = await setUp(new ScriptedUpstream(() => gatewayError('session_lost', 'gone')))
  assert.equal((await ask('tools/call', { name: 'read' })).status, 404)
})

test("the welcome is the server's own, in a version that the client knows", async () => {
  for (const [theirs, agreed, told] of [
    ['2025-11-25', '2025-06-18', '2025-06-18'],
    ['2025-03-26', '2025-06-18', '2025-03-26'],
    ['2025-06-18', '2025-06-18', '2025-06-18'],
  ] as const) {
    const upstream = new ScriptedUpstream()
    upstream.initializeResult = initializeResult(
      {},
      { protocolVersion: theirs, instructions: 'hi', 'x-unknown': 1 },
    )
    const { endpoint, generation } = await setUp(upstream)
    const welcome = await endpoint.welcome(generation, mcpRequest('x').caller, agreed)
    assert.ok('text' in welcome)
    assert.equal(welcome.text, upstream.initializeResult.text.replace(theirs, told))
  }
})

test('a server that cannot be reached has no welcome', async () => {
  const upstream = new ScriptedUpstream()
  upstream.refusal = gatewayError('upstream_unavailable', 'cannot connect')
  const { endpoint, generation } = await setUp(upstream)
  assert.deepEqual(await endpoint.welcome(generation, mcpRequest('x').caller, '2025-06-18'), {
    error: upstream.refusal,
  })
})

test('a server that has left the config has no welcome either', async () => {
  const { generation } = await setUp(new ScriptedUpstream())
  assert.deepEqual(
    await new ServerEndpoint('gone').welcome(generation, mcpRequest('x').caller, '2025-06-18'),
    { error: gatewayError('upstream_unavailable', 'server gone has left the config') },
  )
})

test('notifications pass both ways as they are', async () => {
  const upstream = new ScriptedUpstream()
  const { endpoint, generation } = await setUp(upstream)
  const { request, caller } = mcpRequest('ping')
  await endpoint.request(generation, request)
  const note = message({ method: 'notifications/tools/list_changed' })
  endpoint.notify(generation, caller, note)
  assert.deepEqual(upstream.upstreamSession.posts, [note.text])
  assert.equal(endpoint.inbound(generation, 's', note), note)
})

test('headers are passed on as far as the config says, under the names that it says', async () => {
  const upstream = new ScriptedUpstream()
  const { endpoint, generation } = await setUp(upstream, { forwardHeaders: { 'X-Team': 'X-Tenant' } })
  const headers = { 'x-team': 'blue', authorization: 'Bearer secret', 'x-other': '1' }
  const { request } = mcpRequest('ping', {}, { headers })
  await endpoint.request(generation, request)
  assert.deepEqual(upstream.upstreamSession.calls[0]?.headers, { 'x-tenant': 'blue' })
})

test('headers that came with the handshake go with every call, and count as headers of the call', async () => {
  const upstream = new ScriptedUpstream()
  const { endpoint, generation } = await setUp(upstream, { forwardHeaders: ['x-user', 'x-team'] })
  const caller = Object.assign(new TestCaller(), {
    headers: { 'x-user': 'alice', 'x-team': 'blue', host: 'h' },
  })
  for (const headers of [{}, { 'x-team': 'red' }])
    await endpoint.request(generation, { ...mcpRequest('ping', {}, { headers }).request, caller })
  assert.deepEqual(
    upstream.upstreamSession.calls.map((call) => call.headers),
    [
      { 'x-user': 'alice', 'x-team': 'blue' },
      { 'x-user': 'alice', 'x-team': 'red' },
    ],
  )
})
