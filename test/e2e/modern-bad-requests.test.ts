import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'
import { cleanUp, Gateway, type Json } from './support/gateway.ts'
import { errorOf, headersOf, metaOf, ModernClient } from './support/modern-client.ts'
import { post } from './support/raw-client.ts'
import { stdioToolbox } from './support/toolbox.ts'

let gateway: Gateway
let client: ModernClient

before(async () => {
  gateway = await Gateway.start({ servers: { box: stdioToolbox() } })
  await gateway.waitFor('up', 'box')
  client = new ModernClient(gateway.mcp('box'))
})
after(cleanUp)

const echo = () => client.request('tools/call', { name: 'echo', arguments: { text: 'x' } })
const said = (key: string, value: unknown): Json => ({
  ...metaOf(),
  [`io.modelcontextprotocol/${key}`]: value,
})

test('a request that its headers contradict is refused, under its id', async () => {
  for (const headers of [
    { 'mcp-protocol-version': '2025-11-25' },
    { 'mcp-method': 'tools/list' },
    { 'mcp-method': 'TOOLS/CALL' },
    { 'mcp-name': 'other' },
    { 'mcp-name': '=?base64?ZWNobw?=' },
  ]) {
    const body = echo()
    const reply = await client.post(body, headers)
    const { code } = errorOf(reply)
    assert.deepEqual(
      [reply.status, code, reply.messages[0]?.id],
      [400, -32020, body.id],
      JSON.stringify(headers),
    )
  }
})

test('headers that come several times alike count once', async () => {
  const body = echo()
  const doubled = Object.entries(headersOf(body)).map(([name, value]) => [name, `${value}, ${value}`])
  const { status, messages } = await client.post(body, Object.fromEntries(doubled) as Record<string, string>)
  assert.equal(status, 200)
  assert.ok(messages[0]?.result)
})

test('a name in base64 is read before it is compared', async () => {
  const { status, messages } = await client.post(echo(), { 'mcp-name': '=?base64?ZWNobw==?=' })
  assert.equal(status, 200)
  assert.ok(messages[0]?.result)
})

test('a request without _meta, or with half of it, is refused, under its id', async () => {
  const half = Object.fromEntries(Object.entries(metaOf()).filter(([key]) => !key.endsWith('Capabilities')))
  for (const params of [undefined, {}, { _meta: {} }, { _meta: half }]) {
    const reply = await client.post({ jsonrpc: '2.0', id: 7, method: 'tools/list', params })
    assert.deepEqual([reply.status, errorOf(reply).code, reply.messages[0]?.id], [400, -32602, 7])
  }
})

test('an unknown version is refused with those that are known', async () => {
  const body = {
    jsonrpc: '2.0',
    id: 7,
    method: 'tools/list',
    params: { _meta: said('protocolVersion', 'v999') },
  }
  const reply = await client.post(body, { 'mcp-protocol-version': 'v999' })
  assert.equal(reply.status, 400)
  const { code, data } = errorOf(reply)
  assert.deepEqual([code, data], [-32022, { supported: ['2026-07-28'], requested: 'v999' }])
})

test('methods that this era did away with are unknown, whatever their era once was', async () => {
  for (const method of [
    'initialize',
    'ping',
    'logging/setLevel',
    'resources/subscribe',
    'resources/unsubscribe',
    'tasks/list',
    'tasks/result',
  ]) {
    const reply = await client.ask(method, { taskId: 'some' })
    assert.deepEqual([reply.status, errorOf(reply).code], [404, -32601], method)
  }
  const unknown = await client.ask('no/such')
  assert.deepEqual([unknown.status, errorOf(unknown).code], [404, -32601])
})

test('an initialize without a word of the modern era opens a legacy session', async () => {
  const params = {
    protocolVersion: '2025-11-25',
    capabilities: {},
    clientInfo: { name: 'old', version: '1' },
  }
  const { headers } = await post(
    client.url,
    JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'initialize', params }),
  )
  assert.ok(headers.get('mcp-session-id'))
})

test('a state that was made up or changed is refused', async () => {
  for (const requestState of ['breakwater.made-up', 'breakwater.']) {
    const reply = await client.call('echo', { text: 'x' }, { requestState, inputResponses: {} })
    const { code, data } = errorOf(reply)
    assert.deepEqual([reply.status, code, data], [200, -32602, { reason: 'invalid_request_state' }])
  }
})

test('GET and DELETE are not allowed', async () => {
  for (const method of ['GET', 'DELETE']) {
    const headers = { 'mcp-protocol-version': '2026-07-28', accept: 'text/event-stream' }
    const reply = await fetch(client.url, { method, headers })
    assert.deepEqual([reply.status, reply.headers.get('allow')], [405, 'POST'], method)
    await reply.body?.cancel()
  }
})

test('a notification is taken without an answer', async () => {
  const body = {
    jsonrpc: '2.0',
    method: 'notifications/cancelled',
    params: { requestId: 1, _meta: metaOf() },
  }
  const reply = await post(client.url, JSON.stringify(body), { 'mcp-protocol-version': '2026-07-28' })
  assert.deepEqual([reply.status, reply.text], [202, ''])
})

test('batches, responses and what is no message are refused', async () => {
  const bodies = [
    [echo()],
    { jsonrpc: '2.0', id: 1, result: {} },
    { jsonrpc: '2.0', id: null, method: 'x' },
    { neither: 1 },
    [],
  ]
  for (const body of bodies) {
    const reply = await post(client.url, JSON.stringify(body), headersOf(echo()))
    assert.equal(reply.status, 400, JSON.stringify(body))
    assert.equal(reply.messages[0]?.id, null)
    assert.equal(errorOf(reply).code, -32600, JSON.stringify(body))
  }
  const broken = await post(client.url, '{"jsonrpc":', headersOf(echo()))
  assert.deepEqual([broken.status, errorOf(broken).code], [400, -32700])
})

test('a burst of clients that are alike opens one conversation with the server', async () => {
  const server = await Gateway.start({ servers: { own: stdioToolbox({ sharing: 'per_session' }) } })
  await server.waitFor('up', 'own')
  const burst = Array.from({ length: 50 }, () => new ModernClient(server.mcp('own')).call('pid'))
  const pids = (await Promise.all(burst)).map(({ messages }) => JSON.stringify(messages[0]?.result))
  assert.equal(new Set(pids).size, 1)
  const other = await new ModernClient(server.mcp('own'), { sampling: {} }).call('pid')
  assert.notEqual(JSON.stringify(other.messages[0]?.result), pids[0])
})
