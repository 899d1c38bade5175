import assert from 'node:assert/strict'
import type { ServerResponse } from 'node:http'
import { text } from 'node:stream/consumers'
import { test, type TestContext } from 'node:test'
import { Cancellation } from '../../src/mesh/cancel.ts'
import { type Clock, systemClock } from '../../src/mesh/clock.ts'
import { gatewayError } from '../../src/mesh/errors.ts'
import { postAway } from '../../src/upstreams/http/http-post.ts'
import { MOST_UNDER_WAY } from '../../src/upstreams/http/one-way-posts.ts'
import { ManualClock } from '../support/manual-clock.ts'
import { until } from '../support/until.ts'
import { wireTo } from '../support/wired.ts'

/** A server without automatic acknowledgements, and its posts. */
async function posting(t: TestContext, connections?: number, clock: Clock = systemClock) {
  const got: { body: string; response: ServerResponse }[] = []
  const { wire } = await wireTo(
    t,
    (request, response) => {
      void text(request).then((body) => got.push({ body, response }))
    },
    connections,
  )
  const ends: Promise<unknown>[] = []
  /** Ends the session of all senders. */
  const ended = new Cancellation()
  const post = (sender: object, body: string, limitMs = 60_000) => {
    const end = postAway(wire, body, { clock, limitMs, sender, signal: ended, leavesSent: true }).then(
      () => 'taken',
      (error: { reason: string }) => error.reason,
    )
    ends.push(end)
    return end
  }
  const bodies = () => got.map(({ body }) => body)
  const take = (body: string) =>
    got
      .find((one) => one.body === body)
      ?.response.writeHead(202)
      .end()
  return { post, bodies, take, ends, ended }
}

test('one sender has two posts under way, in order, and another sender does not wait for the rest', async (t) => {
  const { post, bodies, take } = await posting(t)
  const [hostile, kind] = [{}, {}]
  for (let n = 0; n < 100; n++) void post(hostile, `hostile ${n}`)
  void post(kind, 'kind')
  await until('as many posts as allowed have come', () => bodies().length === 3)
  assert.deepEqual(bodies().sort(), ['hostile 0', 'hostile 1', 'kind'])
  take('hostile 0')
  await until('one more post has come', () => bodies().length === 4)
  assert.equal(bodies()[3], 'hostile 2')
})

test('many senders take turns, one post each', async (t) => {
  const { post, bodies, take } = await posting(t)
  const senders = Array.from({ length: MOST_UNDER_WAY }, (_, at) => ({ at }))
  for (const n of [0, 1, 2]) for (const sender of senders) void post(sender, `${sender.at}: ${n}`)
  await until('the first post of each sender is under way', () => bodies().length === MOST_UNDER_WAY)
  assert.ok(bodies().every((body) => body.endsWith(': 0')))
  void post({}, 'late')
  for (const { at } of senders) take(`${at}: 0`)
  await until('the second post of each sender is under way', () => bodies().length === 2 * MOST_UNDER_WAY)
  take('0: 1')
  await until('the next post has come', () => bodies().length === 2 * MOST_UNDER_WAY + 1)
  assert.equal(bodies().at(-1), 'late')
})

test('senders take turns over a single socket as well', async (t) => {
  const { post, bodies, take } = await posting(t, 1)
  const [hostile, kind] = [{}, {}]
  for (const n of [0, 1, 2]) void post(hostile, `hostile ${n}`)
  void post(kind, 'kind')
  await until('the first post has come', () => bodies().length === 1)
  take('hostile 0')
  await until('the next post has come', () => bodies().length === 2)
  take(bodies()[1] as string)
  await until('the post behind has come', () => bodies().length === 3)
  assert.ok(bodies().includes('kind'), bodies().join())
})

test('an abandoned post frees its slot, whether it waits or is under way', async (t) => {
  const clock = new ManualClock()
  const { post, bodies } = await posting(t, undefined, clock)
  const sender = {}
  const underWay = [post(sender, 'under way', 100), post(sender, 'under way as well', 100)]
  const waiting = post(sender, 'waiting', 50)
  await until('two posts have come', () => bodies().length === 2)
  await clock.advance(50)
  assert.equal(await waiting, 'attempt_timeout')
  void post(sender, 'next')
  await clock.advance(50)
  assert.deepEqual(await Promise.all(underWay), ['attempt_timeout', 'attempt_timeout'])
  await until('the next post has come', () => bodies().length === 3)
  assert.equal(bodies()[2], 'next')
})

test('a sender has a mebibyte on its way, or a single message that is larger', async (t) => {
  const { post, bodies, take } = await posting(t)
  const sender = {}
  const large = 'x'.repeat(2 * 1024 ** 2)
  const end = post(sender, large)
  assert.equal(await post(sender, 'one more'), 'overloaded')
  await until('the post has come', () => bodies().length === 1)
  take(large)
  assert.equal(await end, 'taken')
  void post(sender, 'one more')
  await until('the next post has come', () => bodies().length === 2)
})

test('a signal takes back waiting posts, and lets posts under way end', async (t) => {
  const { post, bodies, take, ended } = await posting(t)
  const sender = {}
  const [first, second, third] = [0, 1, 2].map((n) => post(sender, `post ${n}`))
  await until('two posts have come', () => bodies().length === 2)
  ended.abort(gatewayError('cancelled', 'the session ended'))
  assert.equal(await third, 'cancelled')
  take('post 0')
  take('post 1')
  assert.deepEqual(await Promise.all([first, second]), ['taken', 'taken'])
  assert.equal(bodies().length, 2)
})
