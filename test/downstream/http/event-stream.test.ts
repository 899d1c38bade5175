import assert from 'node:assert/strict'
import { test } from 'node:test'
import { drained, EventStream, readEventId, ReplayLog } from '../../../src/downstream/http/event-stream.ts'
import { ManualClock } from '../../support/manual-clock.ts'
import { testGuards } from '../test-guards.ts'
import { holdResponses } from '../../support/held-responses.ts'
import { until } from '../../support/until.ts'

const { replay, keepAlive } = testGuards(new ManualClock())

const newStream = (number = 3, log = new ReplayLog(replay)) =>
  new EventStream(number, log, { unread: () => undefined, keepAlive })

test('messages arrive as events, each with an id', async (t) => {
  const hold = await holdResponses(t)
  const { response, client } = await hold()
  const stream = newStream()
  stream.attach(response, { priming: false })
  assert.equal(stream.attached, true)
  assert.equal(stream.send('{"a":1}'), undefined)
  void stream.send('{\n"b":2}')
  stream.end()
  await client.ended
  const { headers, statusCode } = await client.headers
  assert.equal(statusCode, 200)
  assert.equal(headers['content-type'], 'text/event-stream')
  assert.equal(headers['cache-control'], 'no-cache, no-transform')
  assert.deepEqual(client.data, ['{"a":1}', '{ "b":2}'])
  assert.deepEqual(
    client.events.map(({ id }) => id),
    ['3-1', '3-2'],
  )
})

test('the headers go out at once, and a primed client has an id before the first message', async (t) => {
  const hold = await holdResponses(t)
  const { response, client } = await hold()
  newStream().attach(response, { priming: true })
  await client.headers
  await until('the first event has come', () => client.events.length === 1)
  assert.deepEqual(client.events[0], { type: 'message', data: '', id: '3-0', retryMs: undefined })
})

test('messages sent without a listener wait for the first listener', async (t) => {
  const hold = await holdResponses(t)
  const stream = newStream()
  void stream.send('a')
  void stream.send('b')
  assert.equal(stream.attached, false)
  const { response, client } = await hold()
  stream.attach(response, { priming: false })
  void stream.send('c')
  stream.end()
  await client.ended
  assert.deepEqual(client.data, ['a', 'b', 'c'])
})

test('a primed client that leaves before the messages that waited has missed none of them', async (t) => {
  const hold = await holdResponses(t)
  const stream = newStream()
  void stream.send('a')
  void stream.send('b')
  const { response, client } = await hold()
  stream.attach(response, { priming: true })
  stream.end()
  await client.ended
  assert.deepEqual(
    client.events.map(({ id, data }) => [id, data]),
    [
      ['3-0', ''],
      ['3-1', 'a'],
      ['3-2', 'b'],
    ],
  )
})

test('a client that comes back gets what it has not seen, and only of this stream', async (t) => {
  const hold = await holdResponses(t)
  const log = new ReplayLog(testGuards(new ManualClock()).replay)
  const [stream, other] = [newStream(3, log), newStream(4, log)]
  const first = await hold()
  stream.attach(first.response, { priming: false })
  for (const data of ['a', 'b', 'c']) void stream.send(data)
  void other.send('other')
  await until('all messages have come', () => first.client.data.length === 3)
  first.client.close()
  await until('the stream has lost its client', () => !stream.attached)
  void stream.send('d')
  const second = await hold()
  stream.attach(second.response, { after: 2, priming: true })
  void stream.send('e')
  stream.end()
  await second.client.ended
  assert.deepEqual(
    second.client.events.map(({ id, data }) => [id, data]),
    [
      ['3-3', 'c'],
      ['3-4', 'd'],
      ['3-5', 'e'],
    ],
  )
})

test('a new client is not behind because of messages of the same turn', async (t) => {
  const hold = await holdResponses(t)
  const { response, client } = await hold()
  const stream = newStream()
  stream.attach(response, { priming: false })
  // More than the limit for a client that does not read; but this client has had no time to read.
  const data = Array.from({ length: 8 }, (_, index) => String(index).repeat(60_000))
  for (const text of data) {
    stream.tell(text)
    await Promise.resolve()
  }
  assert.equal(stream.attached, true)
  stream.end()
  await client.ended
  assert.deepEqual(client.data, data)
})

test('a new connection takes the place of the old one, which ends', async (t) => {
  const hold = await holdResponses(t)
  const stream = newStream()
  const [first, second] = [await hold(), await hold()]
  stream.attach(first.response, { priming: false })
  void stream.send('a')
  stream.attach(second.response, { priming: false })
  await first.client.ended
  void stream.send('b')
  assert.equal(stream.attached, true)
  stream.end()
  await second.client.ended
  assert.deepEqual([first.client.data, second.client.data], [['a'], ['b']])
})

test('a pause sends the client away with a time and a place to come back to', async (t) => {
  const hold = await holdResponses(t)
  const stream = newStream()
  const first = await hold()
  stream.attach(first.response, { priming: true })
  void stream.send('a')
  stream.pause(250)
  await first.client.ended
  assert.deepEqual(first.client.events.at(-1), { type: 'message', data: '', id: '3-1', retryMs: 250 })
  void stream.send('b')
  const second = await hold()
  stream.attach(second.response, { after: 1, priming: true })
  stream.end()
  await second.client.ended
  assert.deepEqual(second.client.data, ['b'])
})

test('a pause of a stream that nobody listens to does nothing', async (t) => {
  const hold = await holdResponses(t)
  const { response, client } = await hold()
  const stream = newStream()
  stream.pause(250)
  stream.attach(response, { priming: false })
  void stream.send('a')
  stream.end()
  await client.ended
  assert.deepEqual(client.data, ['a'])
})

test('a foreign event id is ignored', () => {
  assert.deepEqual(readEventId('3-17'), { stream: 3, sequence: 17 })
  assert.deepEqual(readEventId('0-0'), { stream: 0, sequence: 0 })
  for (const id of [
    '',
    '3',
    '3-',
    '-3',
    '3-1-1',
    '3-1x',
    ' 3-1',
    '3.0-1',
    '1e3-1',
    '-1-1',
    '9999999999999999-1',
  ]) {
    assert.equal(readEventId(id), undefined, id)
  }
})

test('all callers that wait for a connection share one promise', async (t) => {
  const hold = await holdResponses(t)
  const { response, client } = await hold()
  response.writeHead(200)
  const waiting = drained(response)
  for (let i = 0; i < 1_000; i++) assert.equal(drained(response), waiting)
  assert.equal(response.listenerCount('drain'), 1)
  response.emit('drain')
  await waiting
  assert.equal(response.listenerCount('drain'), 0)
  assert.notEqual(drained(response), waiting)
  response.end()
  await client.ended
})
