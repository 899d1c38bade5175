import assert from 'node:assert/strict'
import { test } from 'node:test'
import { setImmediate } from 'node:timers/promises'
import { EventStream, ReplayLog } from '../../src/downstream/http/event-stream.ts'
import { ManualClock } from '../support/manual-clock.ts'
import { testGuards } from './test-guards.ts'
import { holdResponses } from '../support/held-responses.ts'
import { until } from '../support/until.ts'

const newStream = () => {
  const { replay, keepAlive } = testGuards(new ManualClock())
  return new EventStream(1, new ReplayLog(replay), {
    unread: () => undefined,
    keepAlive,
  })
}

const CHUNK = 'x'.repeat(256 * 1024)

/** Sends until the connection takes no more; returns the promise to wait for. */
function fill(stream: EventStream): Promise<void> {
  for (let n = 0; n < 1_000; n++) {
    const wait = stream.send(CHUNK)
    if (wait !== undefined) return wait
  }
  return assert.fail('256 MB went into a connection that nobody reads')
}

/** True when a promise is still open after some turns of the event loop. */
async function isPending(promise: Promise<void>): Promise<boolean> {
  let pending = true
  void promise.then(() => (pending = false))
  for (let turn = 0; turn < 50 && pending; turn++) await setImmediate()
  return pending
}

test('a slow client asks to wait, until it reads on', async (t) => {
  const hold = await holdResponses(t)
  const { response, client } = await hold({ reads: false })
  const stream = newStream()
  stream.attach(response, { priming: false })
  // System buffers take some megabytes before a sender has to wait.
  let wait = fill(stream)
  while (!(await isPending(wait))) wait = fill(stream)
  const incoming = await client.headers
  incoming.resume()
  await wait
})

test('a client that leaves while a sender waits for the client holds up no sender', async (t) => {
  const hold = await holdResponses(t)
  const { response, client } = await hold({ reads: false })
  const stream = newStream()
  stream.attach(response, { priming: false })
  const wait = fill(stream)
  client.close()
  await wait
  await until('the stream has lost its client', () => !stream.attached)
  assert.equal(stream.send('more'), undefined)
})

test('a client that left before its stream began holds up no sender either', async (t) => {
  const hold = await holdResponses(t)
  const { response, client } = await hold()
  const closed = new Promise((resolve) => response.once('close', resolve))
  client.close()
  await closed
  const stream = newStream()
  stream.attach(response, { priming: true })
  assert.equal(stream.attached, false)
  assert.equal(stream.send('a'), undefined)
  stream.pause(100)
  stream.end()
})

test('messages to a client that has left wait for its return', async (t) => {
  const hold = await holdResponses(t)
  const gone = await hold()
  const closed = new Promise((resolve) => gone.response.once('close', resolve))
  gone.client.close()
  await closed
  const stream = newStream()
  stream.attach(gone.response, { priming: true })
  void stream.send('a')
  const back = await hold()
  stream.attach(back.response, { priming: false })
  stream.end()
  await back.client.ended
  assert.deepEqual(back.client.data, ['a'])
})

test('a client that does not read messages outside calls is cut off, and may resume', async (t) => {
  const hold = await holdResponses(t)
  const { response } = await hold({ reads: false })
  const stream = newStream()
  stream.attach(response, { priming: false })
  let told = 0
  while (stream.attached && told < 1_000) {
    stream.tell(CHUNK)
    told++
  }
  assert.ok(told < 1_000, 'every message was kept in memory')
  stream.tell('last')
  const back = await hold()
  stream.attach(back.response, { after: told, priming: false })
  stream.end()
  await back.client.ended
  assert.deepEqual(back.client.data, ['last'])
})

test('all waiting senders share one wait', async (t) => {
  const hold = await holdResponses(t)
  const { response } = await hold({ reads: false })
  const stream = newStream()
  stream.attach(response, { priming: false })
  const wait = fill(stream)
  for (let n = 0; n < 20; n++) assert.equal(stream.send(CHUNK), wait)
  assert.ok(response.listenerCount('drain') <= 3)
})
