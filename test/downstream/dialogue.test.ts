import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { McpRequest } from '../../src/downstream/endpoint.ts'
import { gatewayErrorText, type Response } from '../../src/downstream/respond.ts'
import type { GatewayError } from '../../src/mesh/errors.ts'
import { ownTurn } from '../../src/mesh/turns.ts'
import { until } from '../support/until.ts'
import { type Reply, request, testEndpoint } from './test-endpoint.ts'

const errorOf = ({ json }: Reply) => (json as { error: { code: number; message: string } }).error

/** Requests that wait until the test answers them, or their client gives up. */
function waiting() {
  const requests: McpRequest[] = []
  const answer = (request: McpRequest) => {
    requests.push(request)
    return new Promise<Response>((resolve) => {
      request.signal.addEventListener('abort', () => {
        const error = request.signal.reason as GatewayError
        resolve({ text: gatewayErrorText(request.id, error, {}), status: 200 })
      })
    })
  }
  return {
    requests,
    answer,
    begun: (count: number) => until(`${count} requests have arrived`, () => requests.length === count),
  }
}

const cancelled = (requestId: unknown, reason?: string) => ({
  jsonrpc: '2.0',
  method: 'notifications/cancelled',
  params: { requestId, ...(reason === undefined ? {} : { reason }) },
})

test('the gateway answers a ping itself', async (t) => {
  const { post, begin } = await testEndpoint(t, () => assert.fail('asked'))
  assert.deepEqual((await post(request('p', 'ping'), await begin())).json, {
    jsonrpc: '2.0',
    id: 'p',
    result: {},
  })
})

test('ids 0 and "" are ids', async (t) => {
  const { post, begin } = await testEndpoint(t)
  const session = await begin()
  for (const id of [0, '', -1, 'x']) {
    assert.deepEqual((await post(request(id), session)).json, { jsonrpc: '2.0', id, result: {} })
  }
})

test('a session is in use until a large answer is on the wire, however long its call took', async (t) => {
  let answer: (response: Response) => void = () => undefined
  const asked = () => new Promise<Response>((resolve) => (answer = resolve))
  const { post, begin, sessions, clock } = await testEndpoint(t, asked)
  const replied = begin().then((headers) => post(request(1), headers))
  await until('the session has a call under way', () =>
    [...sessions.values()].some(({ inFlight }) => inFlight.size === 1),
  )
  const [session] = sessions.values()
  await clock.advance(10_000)
  // This turn comes before the turn of the answer.
  const before = ownTurn(session?.client).then(() => session?.idleMs)
  answer({ text: JSON.stringify({ jsonrpc: '2.0', id: 1, result: 'x'.repeat(100_000) }), status: 200 })
  assert.equal(await before, 0)
  assert.equal((await replied).status, 200)
  assert.equal(session?.inFlight.size, 0)
})

test('messages without an answer are accepted, and handed to the endpoint unless they are for us', async (t) => {
  const { post, begin, notified } = await testEndpoint(t)
  const session = await begin()
  for (const method of [
    'notifications/initialized',
    'notifications/roots/list_changed',
    'notifications/progress',
  ]) {
    const { status, text } = await post({ jsonrpc: '2.0', method }, session)
    assert.deepEqual([status, text], [202, ''])
  }
  assert.deepEqual(
    notified.map(({ value }) => value.method),
    ['notifications/roots/list_changed'],
  )
  assert.equal((await post({ jsonrpc: '2.0', id: 'nobody-asked', result: {} }, session)).status, 202)
})

test('a message without an id that is no notification is refused, and reaches nobody', async (t) => {
  const { post, begin, notified } = await testEndpoint(t, () => assert.fail('asked'))
  const session = await begin('2025-03-26')
  const call = { jsonrpc: '2.0', method: 'tools/call', params: { name: 'write' } }
  const listed = { jsonrpc: '2.0', method: 'notifications/roots/list_changed' }
  for (const body of [call, [listed, call]]) {
    const reply = await post(body, session)
    assert.equal(reply.status, 400)
    assert.match(errorOf(reply).message, /tools\/call needs an id/)
  }
  assert.deepEqual(notified, [])
})

test('an initialize request in a batch is refused, and begins no session', async (t) => {
  const { post, begin, sessions } = await testEndpoint(t, () => assert.fail('asked'))
  const session = await begin('2025-03-26')
  const { json } = await post([request(1, 'initialize', {}), request(2, 'ping')], session)
  const [refused, pong] = json as { error?: { code: number }; result?: unknown }[]
  assert.deepEqual([refused?.error?.code, pong?.result], [-32600, {}])
  assert.equal(sessions.size, 1)
})

test('a call is cancelled by the id that its client gave it, only in that session, and gets no answer', async (t) => {
  const { answer, begun, requests } = waiting()
  const { post, begin } = await testEndpoint(t, answer)
  const [session, other] = [await begin(), await begin()]
  const reply = post(request(7), session)
  await begun(1)
  await post(cancelled(7), other)
  await post(cancelled('7'), session)
  await post(cancelled(7, 'not needed'), session)
  const { status, text } = await reply
  assert.deepEqual([status, text], [200, ''])
  assert.equal((requests[0]?.signal.reason as GatewayError).message, 'cancelled: not needed')
  assert.equal((await post(cancelled(7), session)).status, 202)
})

test('an id that is still in use is refused, and free again afterwards', async (t) => {
  const { answer, begun } = waiting()
  const { post, begin } = await testEndpoint(t, answer)
  const session = await begin()
  const first = post(request(7), session)
  await begun(1)
  assert.equal(errorOf(await post(request(7), session)).code, -32600)
  await post(cancelled(7), session)
  await first
  const again = post(request(7), session)
  await begun(2)
  await post(cancelled(7), session)
  assert.equal((await again).status, 200)
})

test('a batch answers all its requests but those that were cancelled', async (t) => {
  const { answer, begun } = waiting()
  const { post, begin } = await testEndpoint(t, answer)
  const session = await begin('2025-03-26')
  const reply = post([request(1), request('ping', 'ping')], session)
  await begun(1)
  await post(cancelled(1), session)
  assert.deepEqual((await reply).json, [{ jsonrpc: '2.0', id: 'ping', result: {} }])
})

test('the calls under way of a session are limited', async (t) => {
  const { answer, begun } = waiting()
  const { post, begin } = await testEndpoint(t, answer, { maxInFlight: 2 })
  const session = await begin()
  const calls = [post(request(1), session), post(request(2), session)]
  await begun(2)
  assert.equal(
    errorOf(await post(request(3), session)).message,
    'too many calls in this session (limit 2, gateway.sessions.maxInFlight)',
  )
  for (const id of [1, 2]) await post(cancelled(id), session)
  await Promise.all(calls)
})

test('a batch is answered in the order of its requests, notifications not at all', async (t) => {
  const { post, begin } = await testEndpoint(t, ({ id }) => JSON.stringify({ id }))
  const batch = [
    request(2),
    { jsonrpc: '2.0', method: 'notifications/x' },
    request('ping', 'ping'),
    request(1),
  ]
  const { json } = await post(batch, await begin('2025-03-26'))
  assert.deepEqual(
    (json as { id: unknown }[]).map(({ id }) => id),
    [2, 'ping', 1],
  )
})

test('a call holds its generation until it ends, well or not', async (t) => {
  const { answer, begun } = waiting()
  const { post, begin, live, isClosed } = await testEndpoint(t, answer)
  const session = await begin()
  const reply = post(request(1), session)
  await begun(1)
  live.swap({ ...live.current, close: () => undefined })
  assert.equal(isClosed(), false)
  await post(cancelled(1), session)
  await reply
  assert.equal(isClosed(), true)
})

test('a session that a server lost for good ends with the 404 that tells of it', async (t) => {
  const { post, begin, sessions } = await testEndpoint(t, ({ id }) =>
    Promise.resolve({
      text: `{"jsonrpc":"2.0","id":${String(id)},"error":{"code":1404,"message":"x"}}`,
      status: 404,
    }),
  )
  const session = await begin()
  assert.equal((await post(request(1), session)).status, 404)
  assert.equal(sessions.size, 0)
})

for (const [how, defect] of [
  ['fails', () => Promise.reject(new Error('defect'))],
  [
    'throws',
    () => {
      throw new Error('defect')
    },
  ],
] as const)
  test(`an endpoint that ${how} gets an error as its answer, and leaves nothing in flight`, async (t) => {
    const { post, begin, sessions, live, isClosed } = await testEndpoint(t, defect)
    const session = await begin()
    const { json } = await post(request(1), session)
    assert.deepEqual(json, { jsonrpc: '2.0', id: 1, error: { code: 1500, message: 'internal error' } })
    assert.equal(sessions.find(session['mcp-session-id'])?.inFlight.size, 0)
    live.swap({ ...live.current, close: () => undefined })
    assert.equal(isClosed(), true)
  })
