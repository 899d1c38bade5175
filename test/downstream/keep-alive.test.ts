import assert from 'node:assert/strict'
import { test, type TestContext } from 'node:test'
import type { McpRequest } from '../../src/downstream/endpoint.ts'
import type { Response } from '../../src/downstream/respond.ts'
import type { ManualClock } from '../support/manual-clock.ts'
import type { HeldClient } from '../support/held-responses.ts'
import type { Json } from '../support/memory-pipe.ts'
import { until } from '../support/until.ts'
import { headersFor, later, modern, testModern } from './modern/test-modern.ts'
import { request, testEndpoint } from './test-endpoint.ts'
import { message } from './test-session.ts'

/** As the SDKs write it. */
const BOTH = 'application/json, text/event-stream'

/** A call under way at a gateway, and how to end it. */
interface UnderWay {
  readonly clock: ManualClock
  readonly client: HeldClient
  readonly asked: McpRequest
  /** Resolves when the gateway is done with the reply. */
  answer(response: Partial<Response>): Promise<void>
}

type Start = (t: TestContext, accept?: string) => Promise<UnderWay>

const CALL = { name: 't', arguments: {}, _meta: { progressToken: 'p' } }

const text = (id: unknown, said: Json) => JSON.stringify({ jsonrpc: '2.0', id, ...said })

const startOf = (version: string): Start =>
  async function start(t, accept = BOTH) {
    const answered = later<Response>()
    let asked: McpRequest | undefined
    const bench = await testEndpoint(t, (one) => {
      asked = one
      return answered.promise
    })
    const headers = await bench.begin(version)
    const { response, client } = await bench.hold({ accept })
    const body = request(7, 'tools/call', CALL)
    const incoming = { endpoint: bench.endpoint, headers, client: '127.0.0.1', response }
    const taken = bench.handler.post(incoming, JSON.stringify(body), body)
    return {
      clock: bench.clock,
      client,
      asked: asked!,
      async answer(own) {
        answered.resolve({ text: text(7, { result: { ok: true } }), status: 200, ...own })
        await taken
      },
    }
  }

const startModern: Start = async (t, accept = BOTH) => {
  const answered = later<Response>()
  const bench = await testModern(t, () => answered.promise)
  const body = modern(7, 'tools/call', CALL, CALL._meta)
  const client = await bench.open(body, { ...headersFor(body), accept })
  await until('the call is under way', () => bench.requests.length === 1)
  const asked = bench.requests[0]!
  return {
    clock: bench.clock,
    client,
    asked,
    async answer(own) {
      answered.resolve({ text: text(asked.id, { result: { ok: true } }), status: 200, ...own })
      await client.ended
    },
  }
}

const eras: Readonly<Record<string, Start>> = {
  '2024-11-05': startOf('2024-11-05'),
  '2025-11-25': startOf('2025-11-25'),
  modern: startModern,
}

const comments = ({ text }: HeldClient) => text.split(': keepalive\n\n').length - 1

const said = ({ data }: HeldClient) => data.map((one) => JSON.parse(one) as Json)

for (const [era, start] of Object.entries(eras)) {
  test(`${era}: an answer within 3 s is JSON`, async (t) => {
    const { clock, client, answer } = await start(t)
    await clock.advance(2_999)
    await answer({})
    await client.ended
    const { headers } = await client.headers
    assert.equal(headers['content-type'], 'application/json')
    assert.equal(clock.pending > 0, true)
  })

  test(`${era}: a reply that is long in coming is a stream after 6 s, with a comment every 15 s until its answer`, async (t) => {
    const { clock, client, answer } = await start(t)
    await clock.advance(6_000)
    const { statusCode, headers } = await client.headers
    assert.deepEqual([statusCode, headers['content-type']], [200, 'text/event-stream'])
    await until('the first comment is there', () => comments(client) === 1)
    for (const count of [2, 3, 4]) {
      await clock.advance(14_999)
      assert.equal(comments(client), count - 1)
      await clock.advance(1)
      await until('the next comment is there', () => comments(client) === count)
    }
    await answer({})
    await client.ended
    assert.deepEqual(
      said(client).map(({ id, result }) => [id, (result as Json).ok]),
      [[7, true]],
    )
    assert.equal(comments(client), 4)
  })

  test(`${era}: a client that has not named event streams waits for JSON`, async (t) => {
    const { clock, client, answer } = await start(t, '*/*')
    await clock.advance(60_000)
    await answer({})
    await client.ended
    const { headers } = await client.headers
    assert.equal(headers['content-type'], 'application/json')
  })

  test(`${era}: a stream that says something else within 15 s gets no comment`, async (t) => {
    const { clock, client, asked, answer } = await start(t)
    const channel = asked.channelFor('s')
    await clock.advance(6_000)
    await until('the first comment is there', () => comments(client) === 1)
    const progress = message({
      method: 'notifications/progress',
      params: { progressToken: 'p', progress: 1 },
    })
    for (let n = 0; n < 6; n++) {
      await clock.advance(12_000)
      void channel.send(progress)
    }
    await answer({})
    await client.ended
    assert.deepEqual([comments(client), client.data.length], [1, 7])
  })

  test(`${era}: an error that would be an HTTP status is a message of the stream`, async (t) => {
    const { clock, client, asked, answer } = await start(t)
    await clock.advance(6_000)
    await client.headers
    const id = era === 'modern' ? asked.id : 7
    const error = { code: -32601, message: 'Method not found' }
    await answer({ text: text(id, { error }), status: 404 })
    await client.ended
    assert.equal((await client.headers).statusCode, 200)
    assert.deepEqual(said(client), [{ jsonrpc: '2.0', id: 7, error }])
  })

  test(`${era}: a fault's bytes become a message of the stream, and a fault's status leaves the error`, async (t) => {
    const json = { 'content-type': 'application/json' }
    const event = (data: string) => `event: message\ndata: ${data}\n\n`
    const events = { 'content-type': 'text/event-stream' }
    const error = { code: -32603, message: 'HTTP 503' }
    const cases = [
      [{ status: 200, headers: json, body: '{"broken' }, '{"broken'],
      [{ status: 200, headers: events, body: event('1') + event('2') }, '1|2'],
      [{ status: 503, headers: {}, body: '<html>' }, text(7, { error })],
    ] as const
    for (const [wire, expected] of cases) {
      const { clock, client, asked, answer } = await start(t)
      await clock.advance(6_000)
      await client.headers
      await answer({ text: text(era === 'modern' ? asked.id : 7, { error }), wire })
      await client.ended
      assert.equal(client.data.join('|'), expected)
    }
  })

  test(`${era}: a fault that resets the connection does so in mid-stream`, async (t) => {
    const { clock, client, answer } = await start(t)
    await clock.advance(6_000)
    await until('the first comment is there', () => comments(client) === 1)
    await answer({ wire: { end: 'reset' } })
    await client.ended
    assert.deepEqual(client.data, [])
    assert.equal((await client.headers).complete, false)
  })

  test(`${era}: a fault of the bytes of a reply is told that a part of them is written`, async (t) => {
    const { clock, client, asked, answer } = await start(t)
    const shape = { clock, released: new AbortController().signal, holds: () => undefined }
    const channel = asked.channelFor('s')
    await clock.advance(6_000)
    await client.headers
    const done = { bytes: 0, messages: 0, hasHappened: false }
    assert.equal(channel.wire?.shape?.({ ...shape, done }), false)
    await answer({})
  })

  test(`${era}: a reply that nobody waits for any more is not looked at`, async (t) => {
    const { clock, client } = await start(t)
    client.close()
    await until('the timers are gone', async () => {
      await clock.advance(3_000)
      return clock.pending === (era === 'modern' ? 0 : 1)
    })
  })
}

test('the stream of a session for what belongs to no call gets a comment every 15 s, also after it was taken up again', async (t) => {
  for (const version of ['2024-11-05', '2025-11-25']) {
    const { clock, handler, endpoint, begin, hold } = await testEndpoint(t, undefined, { idle: 1e9 })
    const headers = await begin(version)
    for (let connection = 0; connection < 2; connection++) {
      const { response, client } = await hold()
      void handler.listen({ endpoint, headers, client: '127.0.0.1', response })
      await client.headers
      for (const count of [1, 2, 3]) {
        await clock.advance(15_000)
        await until('a comment is there', () => comments(client) === count)
      }
      await clock.advance(11_999)
      assert.equal(comments(client), 3)
    }
  }
})

test('a client that does not read gets no comments behind what it has not read', async (t) => {
  const { clock, handler, endpoint, begin, hold, sessions } = await testEndpoint(t, undefined, { idle: 1e9 })
  const headers = await begin()
  const { response, client } = await hold({ reads: false })
  void handler.listen({ endpoint, headers, client: '127.0.0.1', response })
  await client.headers
  const session = sessions.find(headers['mcp-session-id'])!
  const large = JSON.stringify('x'.repeat(256 * 1024))
  while (response.writableLength === 0) {
    session.tell(large)
    await clock.advance(0)
  }
  await clock.advance(1)
  const waiting = response.writableLength
  await clock.advance(25_000)
  assert.equal(response.writableLength, waiting)
  client.close()
})
