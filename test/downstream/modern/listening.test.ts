import assert from 'node:assert/strict'
import { test, type TestContext } from 'node:test'
import { setImmediate } from 'node:timers/promises'
import type { Endpoint, McpRequest, Welcome } from '../../../src/downstream/endpoint.ts'
import type { PooledCaller } from '../../../src/downstream/modern/pool.ts'
import type { Response } from '../../../src/downstream/respond.ts'
import { paramsOf } from '../../../src/protocol/jsonrpc.ts'
import { SUBSCRIPTION_ID_KEY } from '../../../src/protocol/versions.ts'
import type { Json } from '../../support/memory-pipe.ts'
import { until } from '../../support/until.ts'
import { later, message, modern, reply, result, testModern } from './test-modern.ts'

const listen = (id: unknown, notifications: unknown) => modern(id, 'subscriptions/listen', { notifications })

type Bench = Awaited<ReturnType<typeof testModern>>

/** Opens a stream, and waits for its acknowledgement. */
async function listening(bench: Bench, id: unknown, notifications: Json) {
  const before = bench.endpoint.listening.size
  const client = await bench.open(listen(id, notifications))
  await until('the stream is open', () => client.data.length > 0 && bench.endpoint.listening.size > before)
  return client
}

const asked = ({ requests }: Bench) =>
  requests.map(({ message: { value } }) => [value.method, paramsOf(value).uri])

/** Members of an endpoint these tests never use. */
const unused: Pick<Endpoint, 'request' | 'notify' | 'inbound' | 'outbound'> = {
  request: () => Promise.reject(new Error('no request is expected')),
  notify: () => undefined,
  inbound: () => undefined,
  outbound: (_, __, message) => message,
}

test('a stream is acknowledged with its notifications, and delivers them', async (t) => {
  const bench = await testModern(t)
  const client = await listening(bench, 42, { toolsListChanged: true, promptsListChanged: true })
  bench.endpoint.listening.tellChanged(['tools', 'prompts', 'resources'])
  await until('a change is told', () => client.data.length > 1)
  bench.endpoint.close()
  const { status, messages } = await reply(client)
  assert.equal(status, 200)
  assert.deepEqual(
    messages.map(({ method }) => method),
    ['notifications/subscriptions/acknowledged', 'notifications/tools/list_changed', undefined],
  )
  assert.deepEqual(messages[2]?.id, 42)
  assert.deepEqual(messages[2]?.result, { resultType: 'complete', _meta: { [SUBSCRIPTION_ID_KEY]: 42 } })
})

test('a stream without deliverable notifications ends at once, with its result', async (t) => {
  const bench = await testModern(t)
  const { messages } = await bench.send(listen('a', { promptsListChanged: true }))
  assert.deepEqual(
    messages.map(({ id, method }) => id ?? method),
    ['notifications/subscriptions/acknowledged', 'a'],
  )
  assert.equal(bench.endpoint.listening.size, 0)
})

test('an invalid filter is refused as invalid params', async (t) => {
  const bench = await testModern(t)
  for (const filter of [undefined, [], { resourceSubscriptions: [1] }]) {
    const { status, messages } = await bench.send(listen('a', filter))
    assert.equal(status, 200)
    assert.equal((messages[0]?.error as Json).code, -32602)
  }
})

test('servers are asked for each resource, and no longer after its last listener has left', async (t) => {
  const bench = await testModern(t)
  const first = await listening(bench, 1, { resourceSubscriptions: ['a://1', 'a://2'] })
  const second = await listening(bench, 2, { resourceSubscriptions: ['a://2'] })
  await until('the server has all subscriptions', () => bench.requests.length === 3)
  first.close()
  await until('the first client’s resource is released', () => bench.requests.length === 4)
  assert.deepEqual(asked(bench).slice(3), [['resources/unsubscribe', 'a://1']])
  second.close()
  await until('the second client’s resource is released', () => bench.requests.length === 5)
  assert.deepEqual(asked(bench).slice(4), [['resources/unsubscribe', 'a://2']])
  assert.equal(bench.requests[0]?.caller.listening, false)
  await bench.clock.advance(3_000)
  assert.equal(bench.clock.pending, 0)
})

test('streams that end at once give back what only they wanted: once for each resource, a few at a time', async (t) => {
  let underWay = 0
  let most = 0
  const bench = await testModern(t, async (request) => {
    most = Math.max(most, ++underWay)
    await setImmediate()
    underWay--
    return result(request, '{}')
  })
  const uris = (from: number) => Array.from({ length: 200 }, (_, n) => `a://${from + n}`)
  const clients = await Promise.all(
    Array.from({ length: 20 }, (_, n) => bench.open(listen(n, { resourceSubscriptions: uris(n * 10) }))),
  )
  await until('all streams are open', () => bench.endpoint.listening.size === 20)
  const named = new Set(Array.from({ length: 20 }, (_, n) => uris(n * 10)).flat())
  const done = () => new Set(asked(bench).map(([, uri]) => uri)).size === named.size && underWay === 0
  await until('all resources are requested', done)
  const before = bench.requests.length
  for (const client of clients) client.close()
  await until('all streams are closed', () => bench.endpoint.listening.size === 0)
  await until(
    'all resources are released',
    () => bench.requests.length >= before + named.size && underWay === 0,
  )
  const ended = asked(bench).slice(before)
  assert.deepEqual(new Set(ended.map(([method]) => method)), new Set(['resources/unsubscribe']))
  assert.deepEqual(ended.map(([, uri]) => uri).toSorted(), [...named].toSorted())
  assert.ok(most <= 16, `${most} at once`)
})

/**
 * An endpoint whose answers to `resources/*` come from the test, and a closed stream that had subscribed to 40
 * resources.
 */
async function leaving(t: TestContext, answer: (request: McpRequest) => Promise<Response> | string) {
  let isLeaving = false
  const bench = await testModern(t, (request) => (isLeaving ? answer(request) : '{}'))
  const resourceSubscriptions = Array.from({ length: 40 }, (_, n) => `a://${n}`)
  const client = await listening(bench, 1, { resourceSubscriptions })
  const { caller } = bench.requests[0]!
  await until(
    'all resources are requested',
    () => bench.requests.length === 40 && !(caller as PooledCaller).calls,
  )
  isLeaving = true
  client.close()
  await until('the client’s leaving is noticed', () => bench.requests.length > 40)
  return { bench, caller: caller as PooledCaller }
}

test('a caller stays in use until its resources are released, and is not dropped before', async (t) => {
  const answered = later<undefined>()
  const { bench, caller } = await leaving(t, (request) => answered.promise.then(() => result(request, '{}')))
  assert.deepEqual([caller.listening, caller.use > 0], [false, true])
  answered.resolve(undefined)
  await until('all resources are released', () => bench.requests.length === 80 && caller.use === 0)
})

test('a failing request holds up no later request', async (t) => {
  let broken = 0
  const { bench, caller } = await leaving(t, () => {
    if (broken++ === 0) throw new Error('a defect')
    return '{}'
  })
  await until('all resources are released', () => bench.requests.length === 80 && caller.use === 0)
  await listening(bench, 2, { resourceSubscriptions: ['a://1'] })
  await until('the resource is requested again', () => bench.requests.length === 81)
})

test('a server that never answers is not asked on for a caller that listens no more', async (t) => {
  let isSilent = true
  const { bench, caller } = await leaving(t, () => (isSilent ? new Promise(() => undefined) : '{}'))
  assert.equal(bench.requests.length, 40 + 16)
  await bench.clock.advance(10_000)
  await until('the caller is given up', () => caller.use === 0)
  assert.equal(bench.requests.length, 40 + 16)
  isSilent = false
  await listening(bench, 2, { resourceSubscriptions: ['a://1'] })
  await until('later resources are requested', () => bench.requests.length === 40 + 16 + 1)
})

test('a burst of changes of one list is told twice, from any sender and in any number', async (t) => {
  const bench = await testModern(t)
  const client = await listening(bench, 1, { toolsListChanged: true, resourceSubscriptions: ['a://1'] })
  const { caller } = bench.requests[0]!
  for (let n = 0; n < 1_000; n++) caller.receive('s', message({ method: 'notifications/tools/list_changed' }))
  await bench.clock.advance(250)
  caller.receive('s', message({ method: 'notifications/resources/updated', params: { uri: 'a://1' } }))
  await until('the last is told', () => client.data.at(-1)?.includes('updated') === true)
  assert.equal(client.data.filter((text) => text.includes('list_changed')).length, 2)
  client.close()
})

test('messages outside calls reach the clients that asked for them', async (t) => {
  const bench = await testModern(t)
  const client = await listening(bench, 1, { resourceSubscriptions: ['a://1'] })
  const { caller } = bench.requests[0]!
  caller.receive('s', message({ method: 'notifications/resources/updated', params: { uri: 'a://2' } }))
  caller.receive('s', message({ method: 'notifications/resources/updated', params: { uri: 'a://1' } }))
  await until('the update is told', () => client.data.length > 1)
  assert.match(client.data[1] ?? '', /a:\/\/1/)
  client.close()
})

test('a silent stream gets a keep-alive comment every 15 seconds', async (t) => {
  const bench = await testModern(t)
  const client = await listening(bench, 1, { toolsListChanged: true })
  await bench.clock.advance(15_000)
  await bench.clock.advance(15_000)
  await until('the client has two keep-alive comments', () => client.text.split(': keepalive').length === 3)
  client.close()
})

test('a client that leaves while the server is still asked who it is is not remembered', async (t) => {
  const bench = await testModern(t)
  const initializeResult = later<Welcome>()
  bench.welcomesWith(initializeResult.promise)
  const { response, client } = await bench.hold()
  const body = listen('a', { toolsListChanged: true })
  const headers = { 'mcp-protocol-version': '2026-07-28', 'mcp-method': 'subscriptions/listen' }
  const endpoint: Endpoint = { ...unused, server: undefined, welcome: () => initializeResult.promise }
  const taken = bench.endpoint.post(
    { endpoint, headers, client: '127.0.0.1', response },
    JSON.stringify(body),
    body,
  )
  client.close()
  await until('the client is gone', () => response.destroyed)
  initializeResult.resolve({ text: '{"capabilities":{"tools":{"listChanged":true}}}' })
  await taken
  assert.equal(bench.endpoint.listening.size, 0)
  assert.equal(bench.clock.pending, 0)
})

test('a stream on a server that was removed ends with its result, and asks nobody for anything', async (t) => {
  const bench = await testModern(t)
  const { response, client } = await bench.hold()
  const body = listen('a', { resourceSubscriptions: ['a://1'] })
  const endpoint: Endpoint = {
    ...unused,
    server: 'gone',
    welcome: () => Promise.resolve({ text: '{"capabilities":{"resources":{"subscribe":true}}}' }),
  }
  const headers = { 'mcp-protocol-version': '2026-07-28', 'mcp-method': 'subscriptions/listen' }
  await bench.endpoint.post({ endpoint, headers, client: '127.0.0.1', response }, JSON.stringify(body), body)
  bench.endpoint.listening.end(({ server }) => server === 'gone')
  const { messages } = await reply(client)
  assert.equal(messages.at(-1)?.id, 'a')
})
