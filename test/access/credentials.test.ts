import assert from 'node:assert/strict'
import type { TestContext } from 'node:test'
import { test } from 'node:test'
import { testServer } from '../registry/test-server.ts'
import { request, testEndpoint, type Reply } from '../downstream/test-endpoint.ts'
import { generationOf } from '../downstream/test-generation.ts'

const params = { protocolVersion: '2025-11-25', capabilities: {}, clientInfo: { name: 'c', version: '1' } }

/** The server `s` receives these headers of agents. */
const serverThatGets = (...names: string[]) =>
  testServer({ forwardHeaders: Object.fromEntries(names.map((name) => [name, name])) }).server

/** An endpoint before a server that receives `x-user`. */
async function setUp(t: TestContext) {
  const bench = await testEndpoint(t)
  bench.servers.set('s', serverThatGets('x-user'))
  const begin = async (headers: Readonly<Record<string, string>>) => {
    const reply = await bench.post(request(1, 'initialize', params), headers)
    return { 'mcp-session-id': String(reply.headers['mcp-session-id']) }
  }
  return { ...bench, begin }
}

const errorOf = ({ status, json }: Reply) => [status, (json as { error: { code: number } }).error.code]

const own = { authorization: 'Bearer a', 'x-user': 'alice', 'x-other': '1' }

for (const [title, other] of [
  ['another token', { ...own, authorization: 'Bearer b' }],
  ['no token', { 'x-user': 'alice' }],
  ['another header that servers get', { ...own, 'x-user': 'bob' }],
  ['no such header', { authorization: 'Bearer a' }],
] as const)
  test(`requests with ${title} do not find a session, for any method`, async (t) => {
    const { begin, post, listen, leave, sessions, notified } = await setUp(t)
    const session = await begin(own)
    const headers = { ...session, ...other }
    const refused = await post(request(2), headers)
    assert.deepEqual(errorOf(refused), [404, -32001])
    assert.match(refused.text, /other credentials/)
    const noted = await post({ jsonrpc: '2.0', method: 'notifications/cancelled' }, headers)
    assert.deepEqual(errorOf(noted), [404, -32001])
    assert.deepEqual(notified, [])
    for (const resume of [{}, { 'last-event-id': '0-1' }])
      assert.deepEqual(errorOf(await listen({ ...headers, ...resume })), [404, -32001])
    assert.deepEqual(errorOf(await leave(headers)), [404, -32001])
    assert.equal(sessions.size, 1)
    assert.equal((await post(request(3), { ...session, ...own, 'x-other': '2' })).status, 200)
    assert.equal((await leave({ ...session, ...own })).status, 204)
  })

test('requests with credentials do not find a session opened without credentials', async (t) => {
  const { begin, post } = await setUp(t)
  const session = await begin({})
  assert.equal((await post(request(2), { ...session, ...own })).status, 404)
  assert.equal((await post(request(3), session)).status, 200)
})

test('a session keeps no token', async (t) => {
  const { begin, sessions } = await setUp(t)
  const session = sessions.find((await begin(own))['mcp-session-id'])
  assert.equal(session?.headers['x-user'], 'alice')
  assert.doesNotMatch(JSON.stringify([session.headers, session.principal]), /Bearer a/)
})

test('a header forwarded since a reload has to equal the header of the handshake', async (t) => {
  const { begin, post, live, clock } = await setUp(t)
  const session = await begin({ ...own, 'x-team': 'blue' })
  live.swap(generationOf(new Map([['s', serverThatGets('x-user', 'x-team')]]), clock))
  assert.equal((await post(request(2), { ...session, ...own, 'x-team': 'red' })).status, 404)
  assert.equal((await post(request(3), { ...session, ...own, 'x-team': 'blue' })).status, 200)
})

test('tracing headers may differ between the requests of a session', async (t) => {
  const { begin, post, servers } = await setUp(t)
  servers.set('s', serverThatGets('x-user', 'baggage', 'traceparent', 'tracestate'))
  const traced = (n: number) => ({ baggage: `n=${n}`, traceparent: `00-${n}`, tracestate: `v=${n}` })
  const session = await begin({ ...own, ...traced(1) })
  for (const more of [traced(1), traced(2), {}])
    assert.equal((await post(request(2), { ...session, ...own, ...more })).status, 200)
  assert.equal((await post(request(3), { ...session, ...own, ...traced(1), 'x-user': 'bob' })).status, 404)
})

test('a header renamed for its server is a credential under any name', async (t) => {
  const { begin, post, servers } = await setUp(t)
  servers.set('s', testServer({ forwardHeaders: { baggage: 'authorization' } }).server)
  const session = await begin({ ...own, baggage: 'a=1' })
  assert.equal((await post(request(2), { ...session, ...own, baggage: 'a=2' })).status, 404)
})
