import assert from 'node:assert/strict'
import { test, type TestContext } from 'node:test'
import { Post } from '../../../src/downstream/modern/post.ts'
import { holdResponses } from '../../support/held-responses.ts'
import { ManualClock } from '../../support/manual-clock.ts'
import { testGuards } from '../test-guards.ts'
import { until } from '../../support/until.ts'

async function post(t: TestContext, { reads = true } = {}) {
  const hold = await holdResponses(t)
  const { response, client } = await hold({ reads })
  const seen = { gone: 0 }
  return {
    client,
    response,
    seen,
    post: new Post(response, {
      guards: testGuards(new ManualClock()),
      onGone: () => seen.gone++,
    }),
  }
}

test('an answer without earlier messages is JSON', async (t) => {
  const { post: reply, client, seen } = await post(t)
  reply.keepAlive()
  reply.finish({ text: '{"a":1}', status: 404 })
  await client.ended
  const { statusCode, headers } = await client.headers
  assert.deepEqual([statusCode, headers['content-type'], client.text], [404, 'application/json', '{"a":1}'])
  assert.equal(seen.gone, 0)
})

test('from the first message on the reply is a stream of events without ids', async (t) => {
  const { post: reply, client, seen } = await post(t)
  assert.equal(reply.send('{"n":1}'), undefined)
  await until('the message has come', () => client.data.length === 1)
  reply.keepAlive()
  reply.finish({ text: '{"n":2}', status: 404 })
  await client.ended
  const { statusCode, headers } = await client.headers
  assert.equal(statusCode, 200)
  assert.equal(headers['content-type'], 'text/event-stream')
  assert.equal(headers['cache-control'], 'no-cache, no-transform')
  assert.equal(
    client.text,
    'event: message\ndata: {"n":1}\n\n: keepalive\n\nevent: message\ndata: {"n":2}\n\n',
  )
  assert.equal(seen.gone, 0)
})

test('the endpoint hears once that a client left before its answer', async (t) => {
  const { post: reply, client, response, seen } = await post(t)
  void reply.send('{"n":1}')
  await client.headers
  client.close()
  await until('the client is gone', () => response.destroyed)
  assert.equal(seen.gone, 1)
  assert.equal(reply.send('{"n":2}'), undefined)
  reply.keepAlive()
  reply.finish({ text: '{}', status: 200 })
  assert.equal(seen.gone, 1)
})

test('a sender waits when the connection takes no more', async (t) => {
  const { post: reply, client } = await post(t)
  const waiting = reply.send(JSON.stringify('x'.repeat(8 * 1024 ** 2)))
  assert.ok(waiting instanceof Promise)
  await waiting
  reply.finish({ text: '{}', status: 200 })
  await client.ended
  assert.equal(client.data.length, 2)
})

test('a client that reads nothing is sent away before it fills the memory', async (t) => {
  const { post: reply, response, client } = await post(t, { reads: false })
  const text = JSON.stringify('x'.repeat(1024 ** 2))
  for (let sent = 0; sent < 64 && !response.destroyed; sent++) reply.tell(text)
  assert.ok(response.destroyed)
  client.close()
})
