import assert from 'node:assert/strict'
import { test } from 'node:test'
import { CallUnderWay } from '../../../src/downstream/legacy/session.ts'
import { gatewayError } from '../../../src/mesh/errors.ts'
import { holdResponses } from '../../support/held-responses.ts'
import { until } from '../../support/until.ts'
import { message, testSession } from '../test-session.ts'

test('messages outside calls wait until the client listens', async (t) => {
  const hold = await holdResponses(t)
  const { session } = testSession()
  assert.equal(session.listening, false)
  session.receive('s', message({ method: 'notifications/message', params: { data: 1 } }))
  session.tell('{"told":2}')
  const { response, client } = await hold()
  assert.equal(session.listen(response, undefined), 'listening')
  assert.equal(session.listening, true)
  await until('both messages have come', () => client.data.length === 2)
  assert.deepEqual(client.data, [
    '{"jsonrpc":"2.0","method":"notifications/message","params":{"data":1}}',
    '{"told":2}',
  ])
})

test('a client that resumes goes on where it was, on the stream that it lost', async (t) => {
  const hold = await holdResponses(t)
  const { session } = testSession()
  const post = await hold()
  const stream = session.streams.open(post.response)
  session.tell('not of this stream')
  void stream.send('a')
  void stream.send('b')
  await until('both messages have come', () => post.client.data.length === 2)
  post.client.close()
  await until('the stream has lost its client', () => !stream.attached)
  void stream.send('c')
  const resumed = await hold()
  assert.equal(session.listen(resumed.response, '1-1'), 'listening')
  void stream.send('d')
  session.streams.close(stream)
  await resumed.client.ended
  assert.deepEqual(resumed.client.data, ['b', 'c', 'd'])
  assert.equal(session.listening, false)
})

test('an ended stream is repeated as far as it is kept, and ends', async (t) => {
  const hold = await holdResponses(t)
  const { session } = testSession()
  const post = await hold()
  const stream = session.streams.open(post.response)
  void stream.send('answer')
  session.streams.close(stream)
  await post.client.ended
  const resumed = await hold()
  assert.equal(session.listen(resumed.response, '1-0'), 'listening')
  await resumed.client.ended
  assert.deepEqual(resumed.client.data, ['answer'])
})

test('a client does not come back to a stream that ended without an answer, once it has read all of the stream', async (t) => {
  const hold = await holdResponses(t)
  const { session } = testSession()
  const stream = session.streams.open((await hold()).response)
  void stream.send('progress')
  session.streams.close(stream, false)
  const { response } = await hold()
  assert.equal(session.listen(response, '1-1'), 'over')
  assert.equal(response.headersSent, false)
})

test('an event id that this session never gave is refused', async (t) => {
  const hold = await holdResponses(t)
  const { session } = testSession()
  const { response } = await hold()
  for (const id of ['', 'x', '1-0', '7-1', '-1-1']) assert.equal(session.listen(response, id), 'unknown', id)
  assert.equal(response.headersSent, false)
})

test('a client of an older version is not primed', async (t) => {
  const hold = await holdResponses(t)
  for (const [version, count] of [
    ['2025-06-18', 1],
    ['2025-11-25', 2],
  ] as const) {
    const { session } = testSession({ version })
    const { response, client } = await hold()
    session.listen(response, undefined)
    session.tell('a')
    session.close()
    await client.ended
    assert.equal(client.events.length, count, version)
  }
})

test('a session is idle from the end of its last activity on', async (t) => {
  const hold = await holdResponses(t)
  const { session, clock } = testSession()
  await clock.advance(1_000)
  assert.equal(session.idleMs, 1_000)
  session.inFlight.set(1, new CallUnderWay())
  assert.equal(session.idleMs, 0)
  session.inFlight.delete(1)
  session.touch()
  assert.equal(session.idleMs, 0)
  const { response, client } = await hold()
  session.listen(response, undefined)
  await clock.advance(3_600_000)
  assert.equal(session.idleMs, 0)
  client.close()
  await until('the session has lost its client', () => response.destroyed)
  assert.equal(session.idleMs, 0)
  await clock.advance(500)
  assert.equal(session.idleMs, 500)
})

test('the end of a session ends its calls and streams', async (t) => {
  const hold = await holdResponses(t)
  const { session, clock } = testSession()
  const call = new CallUnderWay()
  session.inFlight.set(1, call)
  const [listening, posting] = [await hold(), await hold()]
  session.listen(listening.response, undefined)
  session.streams.open(posting.response)
  session.receive('s', message({ method: 'notifications/tools/list_changed' }))
  const error = gatewayError('shutting_down', 'x')
  session.close(error)
  await Promise.all([listening.client.ended, posting.client.ended])
  assert.equal(call.reason, error)
  await clock.advance(3_000)
  assert.equal(clock.pending, 0)
})
