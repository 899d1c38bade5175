import assert from 'node:assert/strict'
import { once } from 'node:events'
import { test, type TestContext } from 'node:test'
import { PostReply, sendJson } from '../../../src/downstream/http/post-reply.ts'
import { newRecord } from '../../../src/mesh/call.ts'
import { hold } from '../../../src/mesh/pause-deadline.ts'
import { LargeMessage } from '../../../src/protocol/large-message.ts'
import { LongStrings } from '../../../src/protocol/long-strings.ts'
import { holdResponses } from '../../support/held-responses.ts'
import { message, testSession } from '../test-session.ts'

async function setUp(t: TestContext, parts: Parameters<typeof testSession>[0] = {}, isBatch = false) {
  const { session, clock } = testSession(parts)
  const { response, client } = await (await holdResponses(t))()
  const record = newRecord(0)
  const reply = new PostReply(session, response, clock, isBatch)
  return { session, clock, client, response, reply, record, channel: reply.channelFor('s', record) }
}

const answer = { text: '{"id":1}', status: 200 }
const progress = message({ method: 'notifications/progress', params: { progress: 1 } })

test('an answer alone is JSON with its status, and leaves no stream behind', async (t) => {
  const { client, reply } = await setUp(t)
  await reply.finish([{ text: '{"ü":1}', status: 404 }])
  await client.ended
  const { statusCode, headers } = await client.headers
  assert.equal(statusCode, 404)
  assert.equal(headers['content-type'], 'application/json')
  assert.equal(headers['content-length'], '8')
  assert.equal(client.text, '{"ü":1}')
})

test('the answers to a batch come in the order of its requests, also a single one', async (t) => {
  for (const responses of [[answer], [answer, { text: '{"id":2}', status: 404 }]]) {
    const { client, reply } = await setUp(t, {}, true)
    await reply.finish(responses)
    await client.ended
    assert.equal((await client.headers).statusCode, 200)
    assert.equal(client.text, `[${responses.map(({ text }) => text).join()}]`)
  }
})

/** Returns a response as a large message, and its text. */
function large(): { readonly response: LargeMessage; readonly text: string } {
  const text = JSON.stringify({ id: 1, result: { text: 'ü'.repeat(100_000) } })
  const chunks = [text.slice(0, 30_000), text.slice(30_000)].map((piece) => Buffer.from(piece))
  const strings = new LongStrings()
  for (const chunk of chunks) strings.read(chunk)
  return { response: LargeMessage.read(chunks, strings)!, text }
}

test('a large message is sent by the bytes that it came in, and takes no time', async (t) => {
  const { client, reply } = await setUp(t)
  const { response, text } = large()
  assert.equal(reply.takesLong(response), false)
  // From now on, reading the text fails the test.
  Object.defineProperty(response, 'text', { get: () => assert.fail('its text was asked for') })
  await reply.finish([response])
  await client.ended
  const { headers } = await client.headers
  assert.equal(headers['content-length'], String(Buffer.byteLength(text)))
  assert.equal(client.text, text)
})

test('in a batch large messages are sent by their bytes, too, in the order of its requests', async (t) => {
  const { client, reply } = await setUp(t, {}, true)
  const { response, text } = large()
  assert.equal(reply.takesLong(response), false)
  Object.defineProperty(response, 'text', { get: () => assert.fail('its text was asked for') })
  const small = { text: '{"ü":1}', status: 404 }
  await reply.finish([small, response, answer, response])
  await client.ended
  const { statusCode, headers } = await client.headers
  const expected = `[${small.text},${text},${answer.text},${text}]`
  assert.deepEqual([statusCode, headers['content-length']], [200, String(Buffer.byteLength(expected))])
  assert.equal(client.text, expected)
})

test('in a stream a large message is text like any other, which takes time', async (t) => {
  const { response, text } = large()
  const stream = await setUp(t)
  void stream.channel.send(progress)
  assert.equal(stream.reply.takesLong(response), true)
  await stream.reply.finish([response])
  await stream.client.ended
  assert.ok(stream.client.text.endsWith(`data: ${text}\n\n`))
})

test('in a batch a large text becomes bytes as soon as it is there, and is sent as they are', async (t) => {
  const { client, reply } = await setUp(t, {}, true)
  const response = { text: JSON.stringify({ id: 1, result: 'ü'.repeat(100_000) }), status: 200 }
  assert.equal(reply.takesLong(response), true)
  const ready = reply.ready(response)
  assert.equal(reply.takesLong(ready), false)
  Object.defineProperty(ready, 'text', { get: () => assert.fail('its text was asked for') })
  await reply.finish([ready, answer, ready])
  await client.ended
  assert.equal(client.text, `[${response.text},${answer.text},${response.text}]`)
})

test('large answers to a batch have a turn each in a stream, and come in order before it ends', async (t) => {
  const { client, reply, channel } = await setUp(t, {}, true)
  let turn = 0
  let isOver = false
  const count = () => {
    turn++
    if (!isOver) setImmediate(count)
  }
  setImmediate(count)
  const readIn: number[] = []
  const texts = [1, 2, 3].map((id) => JSON.stringify({ id, result: 'x'.repeat(100_000) }))
  const responses = texts.map((text) => {
    const { response } = large()
    const get = () => {
      if (readIn.at(-1) !== turn) readIn.push(turn)
      return text
    }
    return Object.defineProperty(response, 'text', { get })
  })
  void channel.send(progress)
  await reply.finish([responses[0]!, answer, responses[1]!, responses[2]!])
  isOver = true
  await client.ended
  assert.deepEqual(client.data, [progress.text, texts[0], answer.text, texts[1], texts[2]])
  assert.equal(readIn.length, 3)
})

test('a message before the answer makes the reply a stream, which ends with the answer', async (t) => {
  const { client, clock, channel, reply, record } = await setUp(t, { version: '2025-06-18' })
  await clock.advance(5)
  void channel.send(progress)
  await clock.advance(5)
  void channel.send(progress)
  await reply.finish([answer])
  await client.ended
  assert.deepEqual(client.data, [progress.text, progress.text, answer.text])
  assert.equal(record.firstByteAt, 5)
})

test('a stream that the server opened is open for the client at once', async (t) => {
  const { client, channel, reply, record } = await setUp(t)
  channel.open()
  channel.open()
  assert.equal((await client.headers).headers['content-type'], 'text/event-stream')
  assert.equal(
    record.firstByteAt,
    undefined,
    'an empty stream has no first byte, so the call may still be sent again',
  )
  await reply.finish([answer])
  await client.ended
  assert.deepEqual(client.data, [answer.text])
})

test('a message dropped by the endpoint opens no stream', async (t) => {
  const { client, channel, reply, record } = await setUp(t, { inbound: () => undefined })
  assert.equal(channel.send(progress), undefined)
  assert.equal(record.firstByteAt, undefined)
  await reply.finish([answer])
  await client.ended
  assert.equal(client.text, answer.text)
})

test('a question holds its call until it is answered, or taken back here or outside of the call', async (t) => {
  const { session, channel, record } = await setUp(t)
  const cancelled = (requestId: number) =>
    message({ method: 'notifications/cancelled', params: { requestId } })
  for (let id = 1; id <= 3; id++)
    void channel.send(message({ id, method: 'roots/list' }), () => Promise.resolve())
  assert.equal(record.asking, 3)
  await session.asked.answer(message({ id: 'breakwater-1', result: {} }))
  void channel.send(cancelled(2))
  assert.equal(record.asking, 1)
  session.receive('s', cancelled(3))
  assert.equal(record.asking, 0)
})

test('a request that the endpoint drops is refused, and holds nothing', async (t) => {
  const { client, channel, reply, record } = await setUp(t, { inbound: () => undefined })
  const refusals: string[] = []
  const refuse = (text: string) => Promise.resolve(void refusals.push(text))
  assert.equal(channel.send(message({ id: 1, method: 'x/list_changed' }), refuse), undefined)
  assert.deepEqual(refusals, [
    '{"jsonrpc":"2.0","id":null,"error":{"code":-32601,"message":"Method not found: x/list_changed"}}',
  ])
  assert.equal(record.asking, 0)
  await reply.finish([answer])
  await client.ended
  assert.equal(client.text, answer.text)
})

test('a pause sends away a client that will come back, and no other', async (t) => {
  for (const [version, paused] of [
    ['2025-11-25', true],
    ['2025-06-18', false],
  ] as const) {
    const { client, channel, reply, session } = await setUp(t, { version })
    channel.open()
    channel.pause(100)
    if (!paused) await reply.finish([answer])
    await client.ended
    assert.equal(
      client.events.some(({ retryMs }) => retryMs === 100),
      paused,
      version,
    )
    if (paused) await reply.finish([answer])
    const back = await (await holdResponses(t))()
    assert.equal(session.listen(back.response, '1-0'), 'listening')
    await back.client.ended
    assert.deepEqual(back.client.data, [answer.text], version)
  }
})

test('a pause before anything was sent does nothing', async (t) => {
  const { client, channel, reply } = await setUp(t)
  channel.pause(100)
  await reply.finish([answer])
  await client.ended
  assert.equal(client.text, answer.text)
})

test('a reply to a client that has left, or has its reply already, does nothing', async (t) => {
  const { client, response } = await setUp(t)
  sendJson(response, 200, '{}', { 'x-test': '1' })
  sendJson(response, 500, '{"second":true}')
  await client.ended
  assert.equal((await client.headers).headers['x-test'], '1')
  assert.equal(client.text, '{}')
  sendJson(response, 200, '{}')
})

/** A call that holds something, and the number of times it was lent. */
function held() {
  const record = newRecord(0)
  const facts = { record, lent: 0 }
  hold(record, { outer: undefined, lend: () => void facts.lent++, takeBack: () => undefined })
  return facts
}

test('a call holds nothing any more when its client has been gone for a second', async (t) => {
  const { clock, client, response, reply } = await setUp(t)
  const [one, over] = [held(), held()]
  for (const { record } of [one, over]) reply.watch(record)
  over.record.isOver = true
  const closed = once(response, 'close')
  client.close()
  await closed
  await clock.advance(999)
  assert.deepEqual([one.lent, over.lent], [0, 0])
  await clock.advance(1)
  assert.deepEqual([one.lent, over.lent], [1, 0])
  await clock.advance(3_000)
  assert.equal(clock.pending, 0)
})

test('a call whose client got the reply releases nothing early', async (t) => {
  const { clock, client, response, reply } = await setUp(t)
  const one = held()
  reply.watch(one.record)
  const closed = once(response, 'close')
  await reply.finish([answer])
  await client.ended
  await closed
  await clock.advance(10_000)
  assert.equal(one.lent, 0)
})

test('a batch of many requests has one listener for the end of its connection', async (t) => {
  const { clock, client, response, reply } = await setUp(t, {}, true)
  const before = response.listenerCount('close')
  const all = Array.from({ length: 50 }, held)
  for (const { record } of all) reply.watch(record)
  assert.equal(response.listenerCount('close'), before + 1)
  const closed = once(response, 'close')
  client.close()
  await closed
  await clock.advance(1_000)
  assert.ok(all.every(({ lent }) => lent === 1))
})
