import { gatewayError } from '../../../src/mesh/errors.ts'
import assert from 'node:assert/strict'
import type { IncomingHttpHeaders } from 'node:http'
import { test } from 'node:test'
import type { Json } from '../../support/memory-pipe.ts'
import { until } from '../../support/until.ts'
import { request, testEndpoint, type Reply } from '../test-endpoint.ts'

const codeOf = ({ json }: Reply) => (json as { error?: { code: number } } | undefined)?.error?.code
const initialize = (params: Json = {}, id: unknown = 1) => request(id, 'initialize', params)

test('a handshake gives a session, in the version that was asked for or our newest', async (t) => {
  const { post, sessions } = await testEndpoint(t)
  for (const [asked, agreed] of [
    ['2025-03-26', '2025-03-26'],
    ['1999-01-01', '2025-11-25'],
    [undefined, '2025-11-25'],
  ]) {
    const { status, headers, json } = await post(initialize({ protocolVersion: asked }))
    assert.equal(status, 200)
    assert.deepEqual(json, { jsonrpc: '2.0', id: 1, result: { protocolVersion: agreed } })
    const session = sessions.find(String(headers['mcp-session-id']))
    assert.equal(session?.version, agreed)
    assert.equal(session?.initializeParams.protocolVersion, agreed)
  }
})

test('a handshake that fails leaves no session', async (t) => {
  const { post, sessions, endpoint } = await testEndpoint(t)
  const error = gatewayError('upstream_unavailable', 'cannot connect')
  endpoint.welcome = () => Promise.resolve({ error })
  const reply = await post(initialize())
  assert.deepEqual([reply.status, codeOf(reply), reply.headers['mcp-session-id']], [200, 1503, undefined])
  assert.equal(sessions.size, 0)
  assert.equal((await post(initialize({}, null))).status, 400)
})

test('a handshake that breaks gives its place back', async (t) => {
  const { post, sessions, endpoint } = await testEndpoint(t, undefined, { max: 1 })
  endpoint.welcome = () => Promise.reject(new Error('a defect'))
  const broken = post(initialize())
  await assert.rejects(broken, /a defect/)
  assert.equal(sessions.refusal('', ''), undefined)
})

test('a handshake under way when the gateway stops begins no session', async (t) => {
  const { post, sessions, endpoint } = await testEndpoint(t)
  let finish: (() => void) | undefined
  endpoint.welcome = () => new Promise((resolve) => (finish = () => resolve({ text: '{}' })))
  const late = post(initialize())
  await until('the handshake is under way', () => finish !== undefined)
  await sessions.closeAll()
  finish?.()
  const reply = await late
  assert.equal(reply.headers['mcp-session-id'], undefined)
  assert.match(reply.text, /the gateway is being stopped/)
  assert.equal(sessions.size, 0)
})

test('a client that leaves before the end of its handshake has no session', async (t) => {
  const { handler, hold, sessions, endpoint } = await testEndpoint(t)
  const { response, client } = await hold()
  let finish: (() => void) | undefined
  endpoint.welcome = () => new Promise((resolve) => (finish = () => resolve({ text: '{}' })))
  const text = JSON.stringify(initialize())
  const taken = handler.post({ endpoint, headers: {}, client: '127.0.0.1', response }, text, JSON.parse(text))
  client.close()
  await until('the client has left', () => response.destroyed)
  finish?.()
  await taken
  assert.equal(sessions.size, 0)
})

test('when there are too many sessions a handshake is turned away, also one of many at the same time', async (t) => {
  const { post, endpoint, sessions } = await testEndpoint(t, undefined, { max: 2 })
  const welcome = endpoint.welcome.bind(endpoint)
  let waiting = 0
  let open = () => {}
  const all = new Promise<void>((resolve) => (open = resolve))
  endpoint.welcome = async (...parts) => {
    waiting++
    await all
    return welcome(...parts)
  }
  const replies = [1, 2, 3, 4].map(() => post(initialize()))
  await until('two handshakes are under way', () => waiting === 2)
  open()
  const statuses = (await Promise.all(replies)).map(({ status }) => status)
  assert.deepEqual(statuses.toSorted(), [200, 200, 503, 503])
  assert.equal(sessions.size, 2)
  assert.equal((await post(initialize())).headers['retry-after'], '5')
})

test('a body that is no JSON-RPC is refused, with its id where there is one', async (t) => {
  const { post, begin } = await testEndpoint(t)
  const session = await begin()
  for (const body of ['{}', 'null', '7', '"x"', '{"jsonrpc":"1.0","id":5,"method":"m"}']) {
    const reply = await post(body, session)
    assert.deepEqual([reply.status, codeOf(reply)], [400, -32600], body)
  }
  assert.equal(((await post('{"id":5,"method":"m"}', session)).json as { id: unknown }).id, 5)
})

test('only one protocol version has batches', async (t) => {
  const { post, begin } = await testEndpoint(t)
  const batch = [request(1), request(2)]
  for (const version of ['2024-11-05', '2025-06-18', '2025-11-25']) {
    assert.equal((await post(batch, await begin(version))).status, 400, version)
  }
  const reply = await post(batch, await begin('2025-03-26'))
  assert.deepEqual(
    (reply.json as { id: number }[]).map(({ id }) => id),
    [1, 2],
  )
})

test('a session speaks the version that its server has named, not the one that was asked for', async (t) => {
  const { post, begin, endpoint } = await testEndpoint(t)
  const named = (version: string) => {
    endpoint.welcome = () => Promise.resolve({ text: JSON.stringify({ protocolVersion: version }), version })
  }
  named('2025-03-26')
  assert.equal((await post([request(1), request(2)], await begin('2025-11-25'))).status, 200)
  named('2024-11-05')
  const refused = await post([request(1), request(2)], await begin('2025-03-26'))
  assert.match(refused.text, /version 2024-11-05 has no batches/)
})

test('a request without a session, or with one that nobody knows, is refused', async (t) => {
  const { post, leave, listen, begin } = await testEndpoint(t)
  const session = await begin()
  const other = { ...session, 'mcp-session-id': 'x' }
  for (const send of [(headers: IncomingHttpHeaders) => post(request(1), headers), leave, listen]) {
    const [missing, unknown] = [await send({}), await send(other)]
    assert.deepEqual([missing.status, codeOf(missing)], [400, -32000])
    assert.deepEqual([unknown.status, codeOf(unknown)], [404, -32001])
    assert.equal((await send({ ...session, 'mcp-protocol-version': '1999-01-01' })).status, 400)
  }
})

test('a session of one endpoint is unknown at another', async (t) => {
  const { handler, endpoint, begin, hold } = await testEndpoint(t)
  const session = await begin()
  const { response, client } = await hold()
  await handler.post(
    { endpoint: { ...endpoint, server: 's' }, headers: session, client: '', response },
    JSON.stringify(request(1)),
    request(1),
  )
  await client.ended
  assert.equal((await client.headers).statusCode, 404)
})

test('a client that leaves has no session any more', async (t) => {
  const { leave, post, begin, sessions } = await testEndpoint(t)
  const session = await begin()
  assert.equal((await leave(session)).status, 204)
  assert.equal(sessions.size, 0)
  assert.equal((await post(request(1), session)).status, 404)
})

test('a client that resumes with an id that is none of ours is refused', async (t) => {
  const { listen, begin } = await testEndpoint(t)
  assert.equal((await listen({ ...(await begin()), 'last-event-id': 'x' })).status, 400)
})
