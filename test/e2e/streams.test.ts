import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'
import { until } from '../support/until.ts'
import { EventReader } from './support/event-reader.ts'
import { cleanUp, Gateway, type Json } from './support/gateway.ts'
import { ModernClient } from './support/modern-client.ts'
import { post, RawClient } from './support/raw-client.ts'
import { closeServers, RawServer, sendResult } from './support/raw-server.ts'
import { closeClients, connect, textOf } from './support/sdk-client.ts'
import { HttpToolbox, stdioToolbox } from './support/toolbox.ts'

const LIST_CHANGED = 'notifications/tools/list_changed'

let gateway: Gateway
let slow: RawServer

/** Continues the call under way. */
let proceed: () => void = () => undefined

let parted: unknown

const held: (() => void)[] = []

before(async () => {
  const remote = await HttpToolbox.start()
  // Streams an event, waits for `proceed`, and streams another event and the answer.
  slow = await RawServer.start(
    ({ verb, headers, message }, response) => {
      if (verb === 'GET' && headers['last-event-id'] === 'place') {
        response.writeHead(200, { 'content-type': 'text/event-stream' })
        const result = { content: [{ type: 'text', text: 'rest' }] }
        response.end(`data: ${JSON.stringify({ jsonrpc: '2.0', id: parted, result })}\n\n`)
        return true
      }
      if (message.method !== 'tools/call') return false
      if ((message.params as Json).name === 'parted') {
        parted = message.id
        response.writeHead(200, { 'content-type': 'text/event-stream' })
        response.end('id: place\nretry: 30000\ndata: \n\n')
        return true
      }
      if ((message.params as Json).name === 'held') {
        const result = { content: [{ type: 'text', text: 'late' }] }
        held.push(() => sendResult(response, message.id, result))
        return true
      }
      const event = (body: Json) => response.write(`data: ${JSON.stringify({ jsonrpc: '2.0', ...body })}\n\n`)
      const log = (data: string) =>
        event({ method: 'notifications/message', params: { level: 'info', data } })
      response.writeHead(200, { 'content-type': 'text/event-stream' })
      log('first')
      proceed = () => {
        log('second')
        event({ id: message.id, result: { content: [{ type: 'text', text: 'done' }] } })
        response.end()
      }
      return true
    },
    ['slow', 'held', 'parted'],
  )
  gateway = await Gateway.start({
    servers: { slow: { url: slow.url }, remote: { url: remote.url }, local: stdioToolbox() },
    // Its server asks the client for a longer pause.
    policies: { overrides: [{ match: { server: 'slow', tool: 'parted' }, deadline: { total: '20s' } }] },
  })
  await gateway.waitFor('up', 'slow', 'remote', 'local')
})
after(async () => {
  await closeClients()
  await cleanUp()
  closeServers()
})

const slowCall = { jsonrpc: '2.0', id: 'slow', method: 'tools/call', params: { name: 'slow', arguments: {} } }

const acceptJson = { accept: 'Application/JSON' }
const acceptEvents = { accept: 'TEXT/Event-Stream;q=0.5' }

test('a client that accepts only JSON gets JSON answers, and other messages by its stream', async () => {
  const client = await RawClient.open(gateway.mcp('slow'), { headers: acceptJson })
  const listening = await client.listen()
  const answering = client.post(slowCall, acceptJson)
  await listening.next('the first event', ({ params }) => (params as Json)?.data === 'first')
  proceed()
  const { headers, messages } = await answering
  assert.equal(headers.get('content-type'), 'application/json')
  assert.deepEqual(
    messages.map(({ id }) => id),
    ['slow'],
  )
  listening.drop()
  const local = await RawClient.open(gateway.mcp('local'), { headers: acceptJson })
  const ping = await local.post({ jsonrpc: '2.0', id: 1, method: 'ping' }, acceptJson)
  assert.equal(ping.headers.get('content-type'), 'application/json')
})

test("a client that accepts only events gets its answers as events, the gateway's own too", async () => {
  const client = await RawClient.open(gateway.mcp(), { headers: acceptEvents })
  const call = { ...slowCall, params: { name: 'local__echo', arguments: { text: 'x' } } }
  for (const body of [
    { jsonrpc: '2.0', id: 1, method: 'ping' },
    { ...call, id: 2 },
  ]) {
    const { status, headers, messages } = await client.post(body, acceptEvents)
    assert.deepEqual([status, headers.get('content-type')], [200, 'text/event-stream'])
    assert.deepEqual([messages.length, messages[0]?.id], [1, body.id])
  }
})

test('in the modern era too a client gets its answers as it accepts them', async () => {
  const client = new ModernClient(gateway.mcp('slow'))
  const logging = { ...client.meta, 'io.modelcontextprotocol/logLevel': 'debug' }
  const body = { ...client.request('tools/call', { name: 'slow', arguments: {} }) }
  const asked = slow.of('tools/call').length
  const answering = client.post({ ...body, params: { ...(body.params as Json), _meta: logging } }, acceptJson)
  await until('the server is asked', () => slow.of('tools/call').length > asked)
  proceed()
  const json = await answering
  assert.deepEqual([json.headers.get('content-type'), json.messages.length], ['application/json', 1])
  const events = await client.post(client.request('server/discover'), acceptEvents)
  assert.deepEqual([events.headers.get('content-type'), events.messages.length], ['text/event-stream', 1])
  const listen = client.request('subscriptions/listen', { notifications: {} })
  assert.equal((await client.post(listen, acceptJson)).status, 406)
})

for (const server of ['slow', undefined]) {
  test(`a client whose connection broke in mid-call resumes ${server ?? 'among others'}`, async () => {
    const client = await RawClient.open(gateway.mcp(server))
    const name = server === undefined ? 'slow__slow' : 'slow'
    const broken = await client.stream({ ...slowCall, params: { name, arguments: {} } })
    await broken.next('the first event', ({ params }) => (params as Json)?.data === 'first')
    const last = broken.events.at(-1)?.id
    broken.drop()
    proceed()
    const resumed = await client.listen(last)
    const answer = await resumed.next('the answer', ({ id }) => id === 'slow')
    assert.equal((answer.result as { content: { text: string }[] }).content[0]?.text, 'done')
    const logs = resumed.messages('notifications/message').map(({ params }) => (params as Json).data)
    assert.deepEqual(logs, ['second'])
    await until('the stream ends behind the answer', () => resumed.ended)
    assert.equal(slow.of('notifications/cancelled').length, 0)
  })
}

test('a reply that is long in coming is a stream: the SDK reads it, and a client whose connection broke resumes it', async () => {
  const sdk = await connect(gateway.mcp('slow'))
  const called = sdk.callTool({ name: 'held', arguments: {} })
  const client = await RawClient.open(gateway.mcp('slow'))
  const params = { name: 'held', arguments: {} }
  // Resolves at the head of the reply, before any answer.
  const broken = await client.stream({ jsonrpc: '2.0', id: 'held', method: 'tools/call', params })
  await until('the client has an event to resume from', () => broken.events.length === 1)
  assert.deepEqual(broken.messages(), [])
  broken.drop()
  const resumed = await client.listen(broken.events[0]?.id)
  await until('the server has both calls', () => held.length === 2)
  for (const answer of held.splice(0)) answer()
  const { result } = await resumed.next('the answer', ({ id }) => id === 'held')
  assert.equal((result as { content: { text: string }[] }).content[0]?.text, 'late')
  assert.equal(textOf(await called), 'late')
})

test('a client that reconnects sooner than asked need not wait for the rest of the pause', async () => {
  const client = await RawClient.open(gateway.mcp('slow'))
  const call = { ...slowCall, id: 'parted', params: { name: 'parted', arguments: {} } }
  const broken = await client.stream(call)
  await until('the stream has ended', () => broken.ended)
  const resumed = await client.listen(broken.events.at(-1)?.id)
  const answer = await resumed.next('the answer', ({ id }) => id === 'parted')
  assert.equal((answer.result as { content: { text: string }[] }).content[0]?.text, 'rest')
})

test('a client cannot resume from an invented event id', async () => {
  const client = await RawClient.open(gateway.mcp())
  for (const id of ['nonsense', '99-1', '-1-1']) assert.equal((await client.listen(id)).status, 400, id)
})

test('a client gets what happened between two of its streams, once', async () => {
  const client = await RawClient.open(gateway.mcp('local'))
  const first = await client.listen()
  await client.say('add', { name: 'one' })
  await until('the change is told', () => first.messages(LIST_CHANGED).length === 1)
  const last = first.events.at(-1)?.id
  first.drop()
  await client.say('add', { name: 'two' })
  const second = await client.listen(last)
  await until('the change is told', () => second.messages(LIST_CHANGED).length > 0)
  assert.equal(second.messages(LIST_CHANGED).length, 1)
})

for (const server of ['remote', 'local']) {
  test(`a cancelled call ends at once without a response, and the ${server} server is told`, async () => {
    for (const [client, prefix] of [
      [await RawClient.open(gateway.mcp(server)), ''],
      [await RawClient.open(gateway.mcp()), `${server}__`],
    ] as const) {
      const params = { name: `${prefix}sleep`, arguments: { ms: 60_000 } }
      const call = client.post({ jsonrpc: '2.0', id: 'long', method: 'tools/call', params })
      await gateway.waitForCalls(1)
      const told = (await client.say(`${prefix}received`)).split('notifications/cancelled').length
      const cancel = { requestId: 'long', reason: 'enough' }
      await client.post({ jsonrpc: '2.0', method: 'notifications/cancelled', params: cancel })
      assert.deepEqual((await call).messages, [])
      await until('the server is told', async () => {
        return (await client.say(`${prefix}received`)).split('notifications/cancelled').length === told + 1
      })
    }
  })
}

test('a client that left is unknown, and its stream and its calls are over', async () => {
  const client = await RawClient.open(gateway.mcp('local'))
  const stream = await client.listen()
  const call = client.call('sleep', { ms: 60_000 })
  await gateway.waitForCalls(1)
  assert.equal(await client.leave(), 204)
  assert.equal(((await call).error as { data: Json }).data.code, 'BW_CANCELLED')
  await until('the stream is over', () => stream.ended)
  assert.equal(
    (await post(client.url, '{"jsonrpc":"2.0","id":1,"method":"ping"}', client.headers)).status,
    404,
  )
  assert.equal(await client.leave(), 404)
  const gone = await EventReader.open(client.url, {
    headers: { ...client.headers, accept: 'text/event-stream' },
  })
  assert.equal(gone.status, 404)
})

test('a batch is answered as a batch, and each of its messages is taken', async () => {
  const client = await RawClient.open(gateway.mcp(), { version: '2025-03-26' })
  const call = (id: unknown, name: string, args: Json) => ({
    jsonrpc: '2.0',
    id,
    method: 'tools/call',
    params: { name, arguments: args },
  })
  const { status, messages } = await client.post([
    call(1, 'local__echo', { text: 'one' }),
    { jsonrpc: '2.0', method: 'notifications/roots/list_changed' },
    call('two', 'remote__echo', { text: 'two' }),
    { jsonrpc: '2.0', id: 3, method: 'ping' },
  ])
  assert.equal(status, 200)
  assert.deepEqual(
    messages.map(({ id, result }) => [id, (result as { content?: { text: string }[] }).content?.[0]?.text]),
    [
      [1, 'one'],
      ['two', 'two'],
      [3, undefined],
    ],
  )
  assert.equal((await client.post([{ jsonrpc: '2.0', method: 'notifications/x' }])).status, 202)
})
