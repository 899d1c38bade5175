import assert from 'node:assert/strict'
import type { Socket } from 'node:net'
import { test, type TestContext } from 'node:test'
import { sendJson, sendResponse } from '../../../src/downstream/http/post-reply.ts'
import { type UnreadCause, UnreadReplies } from '../../../src/downstream/http/unread-replies.ts'
import { LargeMessage } from '../../../src/protocol/large-message.ts'
import { type Held, holdPipelined, holdResponses } from '../../support/held-responses.ts'
import { ManualClock } from '../../support/manual-clock.ts'
import { until } from '../../support/until.ts'

const MIB = 1024 ** 2

/** More than all buffers of a connection take. */
const REPLY = 24 * MIB

const limits = { total: 100 * MIB, perSession: 60 * MIB, stalled: 30_000 }

async function setUp(t: TestContext, more: Partial<typeof limits> = {}) {
  const clock = new ManualClock()
  const closed: UnreadCause[] = []
  const unread = new UnreadReplies(clock, { ...limits, ...more }, (cause) => closed.push(cause))
  const hold = await holdResponses(t)
  const send = async (client: object = {}, { reads = false, bytes = REPLY } = {}) => {
    const held = await hold({ reads })
    sendJson(held.response, 200, JSON.stringify('x'.repeat(bytes)))
    unread.wrote(held.response, client)
    return held
  }
  /** Sends a large answer as bytes. */
  const sendBytes = async (message: LargeMessage) => {
    const held = await hold({ reads: false })
    sendResponse(held.response, message)
    unread.wrote(held.response, {})
    return held
  }
  return { clock, closed, unread, send, sendBytes }
}

/** Lets a paused client read `bytes`, or until it is cut off; returns the number of bytes read. */
async function readSome({ client }: Held, bytes: number): Promise<number> {
  const incoming = (await client.headers).on('error', () => undefined)
  let got = 0
  const take = (chunk: Buffer) => {
    got += chunk.length
    if (got >= bytes) incoming.pause()
  }
  incoming.on('data', take).resume()
  await until('the client has read the bytes, or is cut', () => got >= bytes || incoming.closed)
  incoming.off('data', take)
  return got
}

const isClosed = ({ response }: Held) => response.destroyed

/**
 * Advances time until a connection is closed; returns for how long it had taken nothing. The system may take more
 * unread bytes at any time, because its buffers grow.
 */
async function idleUntilClosed(clock: ManualClock, socket: Socket): Promise<number> {
  const { _handle: handle } = socket as Socket & {
    readonly _handle: { readonly bytesWritten: number; readonly writeQueueSize: number }
  }
  let [taken, takenAt] = [0, clock.now()]
  for (let second = 0; second < 300 && !socket.destroyed; second++) {
    const now = handle.bytesWritten - handle.writeQueueSize
    if (now !== taken) [taken, takenAt] = [now, clock.now()]
    await clock.advance(1_000)
  }
  return clock.now() - takenAt
}

test('bytes that replies have in common count once over all clients, for as long as any of them waits', async (t) => {
  const { closed, unread, send, sendBytes } = await setUp(t)
  const answer = LargeMessage.of({ text: JSON.stringify({ result: 'x'.repeat(REPLY) }), status: 200 })
  const all = [await sendBytes(answer), await sendBytes(answer), await sendBytes(answer)]
  const shared = unread.bytes
  assert.ok(shared > REPLY / 2 && shared < 2 * REPLY, `${shared} bytes`)
  all.push(await sendBytes(answer), await sendBytes(answer), await sendBytes(answer))
  assert.deepEqual([closed, unread.bytes <= 2 * REPLY], [[], true])
  await send()
  assert.ok(unread.bytes > shared + REPLY / 2)
  for (const { response } of all) response.destroy()
  assert.equal(unread.isAny, true)
  assert.ok(unread.bytes < 2 * REPLY, `${unread.bytes} bytes`)
})

test('a reply the connection takes at once is not watched', async (t) => {
  const { clock, unread, send } = await setUp(t)
  const held = await send({}, { bytes: 1_000 })
  assert.deepEqual([unread.bytes, clock.pending], [0, 0])
  assert.equal(isClosed(held), false)
})

test('a reply that is read is forgotten, and nothing more is looked at', async (t) => {
  const { clock, closed, unread, send } = await setUp(t)
  const held = await send({}, { reads: true })
  assert.ok(unread.bytes > 0)
  await held.client.ended
  assert.equal(held.client.text.length, REPLY + 2)
  await until('the reply is completely written', () => held.response.writableFinished)
  await clock.advance(1_000)
  assert.deepEqual([unread.bytes, clock.pending, closed], [0, 0, []])
})

test('a connection that reads nothing for its time limit is closed', async (t) => {
  const { clock, closed, unread, send } = await setUp(t)
  const { response } = await send()
  assert.ok(response.socket)
  const idle = await idleUntilClosed(clock, response.socket)
  assert.ok(idle >= limits.stalled && idle <= limits.stalled + 1_000, `closed after ${idle} ms`)
  assert.deepEqual([closed, unread.bytes, clock.pending], [['stalled'], 0, 0])
})

test('a connection that takes a little now and then stays open', async (t) => {
  const { clock, closed, send } = await setUp(t)
  const held = await send({}, { bytes: 2 * REPLY })
  const incoming = await held.client.headers
  let [got, wanted] = [0, 0]
  const take = (chunk: Buffer) => {
    got += chunk.length
    if (got > wanted) incoming.pause()
  }
  incoming.on('data', take).pause()
  for (let round = 0; round < 4; round++) {
    await clock.advance(20_000)
    wanted = got + 8 * MIB
    incoming.resume()
    await until('the client has taken some bytes', () => got > wanted)
    await clock.advance(1_000)
  }
  assert.deepEqual([isClosed(held), closed], [false, []])
})

test('over the total limit, only as many connections as necessary are closed, and never the newest', async (t) => {
  const { clock, closed, unread, send } = await setUp(t)
  const held: Held[] = []
  for (let n = 0; n < 8; n++) {
    held.push(await send())
    await clock.advance(1_000)
    assert.ok(unread.bytes <= limits.total, `${unread.bytes} bytes wait`)
    assert.equal(held.at(-1)?.response.destroyed, false)
  }
  assert.ok(held.filter((each) => !isClosed(each)).length > 2)
  assert.deepEqual([...new Set(closed)], ['total'])
})

test('a client that reads is not closed in favour of slower readers, however old its connection', async (t) => {
  const { clock, closed, send } = await setUp(t, { total: 160 * MIB })
  const reading = await send({}, { bytes: 3 * REPLY })
  const slow: Held[] = []
  let got = 0
  for (let n = 0; n < 6; n++) {
    // The system takes less than 8 MiB of unread bytes, at once or as its buffers grow.
    slow.push(await send())
    await clock.advance(1_000)
    const [some = 0] = await Promise.all([
      readSome(reading, 12 * MIB),
      ...slow.map((each) => readSome(each, MIB)),
    ])
    got += some
  }
  assert.equal(got, 3 * REPLY + 2)
  assert.deepEqual([...new Set(closed)], ['total'])
})

test('a large reply that is put on the wire just now is not taken for one that is read the least', async (t) => {
  const { clock, closed, unread, send } = await setUp(t, { total: 85 * MIB })
  const { responses } = await holdPipelined(t, 2)
  const [first, second] = responses
  sendJson(second!, 200, JSON.stringify('x'.repeat(REPLY)))
  unread.wrote(second!)
  const stuck = await send({}, { bytes: 2 * REPLY })
  // Neither client has taken anything for 3 s.
  for (let n = 0; n < 3; n++) await clock.advance(1_000)
  first?.end()
  await until('the second reply is in front', () => Boolean(second?.socket))
  const newest = await send({}, { bytes: 2 * REPLY })
  await until('one connection is closed', () => second?.destroyed === true || isClosed(stuck))
  assert.deepEqual(
    [second?.destroyed, isClosed(stuck), isClosed(newest), closed],
    [false, true, false, ['total']],
  )
})

test('over the limit of a client, connections of this client are closed', async (t) => {
  const { clock, closed, send } = await setUp(t)
  const [one, other] = [{ name: 'one' }, { name: 'other' }]
  const bystander = await send(other)
  const held: Held[] = []
  for (let n = 0; n < 4; n++) {
    held.push(await send(one))
    await clock.advance(100)
  }
  assert.equal(isClosed(bystander), false)
  assert.equal(isClosed(held[3] as Held), false)
  // The system decides, as its buffers grow, which connection took something last.
  assert.ok(held.some(isClosed))
  assert.deepEqual([...new Set(closed)], ['per_session'])
})

test('a single reply may be larger than every limit: its client may read it', async (t) => {
  const { closed, send } = await setUp(t, { total: MIB, perSession: MIB })
  const held = await send({}, { reads: true })
  await held.client.ended
  assert.deepEqual([held.client.text.length, closed], [REPLY + 2, []])
})

/** Pipelined requests on one unread connection; all but the first are answered at once. */
async function setUpPipelined(t: TestContext, count: number, more: Partial<typeof limits> = {}) {
  const clock = new ManualClock()
  const closed: UnreadCause[] = []
  const unread = new UnreadReplies(clock, { ...limits, ...more }, (cause) => closed.push(cause))
  const { responses, socket } = await holdPipelined(t, count)
  const answer = (response: (typeof responses)[number], bytes: number, client?: object) => {
    sendJson(response, 200, JSON.stringify('x'.repeat(bytes)))
    unread.wrote(response, client)
  }
  return { clock, closed, unread, responses, socket, answer }
}

test('a reply that was seen before anybody said whose it is counts for that session from then on', async (t) => {
  const { unread, responses, socket, closed } = await setUpPipelined(t, 6, { perSession: 3 * MIB })
  const sessions = [{}, {}]
  for (const [index, response] of responses.slice(1, 5).entries()) {
    sendJson(response, 200, JSON.stringify('x'.repeat(MIB)))
    unread.wrote(response)
    unread.wrote(response, sessions[index % 2])
  }
  assert.ok(unread.bytes > 4 * MIB && unread.bytes < 5 * MIB, `${unread.bytes} bytes`)
  assert.deepEqual([closed, socket.destroyed], [[], false])
})

test('replies that wait for another one on their connection count, all of them', async (t) => {
  const { unread, responses, answer, closed } = await setUpPipelined(t, 4)
  for (const response of responses.slice(1)) answer(response, MIB)
  assert.ok(unread.bytes > 3 * MIB && unread.bytes < 4 * MIB, `${unread.bytes} bytes`)
  assert.deepEqual(closed, [])
})

test('a connection with too many replies that wait for another one is closed, and all of them are forgotten', async (t) => {
  for (const [more, cause] of [
    [{ total: 5 * MIB }, 'total'],
    [{ perSession: 5 * MIB }, 'per_session'],
  ] as const)
    for (const client of [{}, undefined]) {
      const { clock, unread, responses, socket, answer, closed } = await setUpPipelined(t, 8, more)
      for (const response of responses.slice(1)) answer(response, MIB, client)
      assert.deepEqual([closed, socket.destroyed, unread.bytes], [[cause], true, 0])
      await clock.advance(1_000)
      assert.equal(clock.pending, 0)
    }
})

test('replies queued behind a slow reply do not count against their client, and are forgotten with the connection', async (t) => {
  const { clock, unread, responses, socket, answer, closed } = await setUpPipelined(t, 3)
  for (const response of responses.slice(1)) answer(response, MIB)
  await clock.advance(60_000)
  assert.deepEqual([closed, socket.destroyed], [[], false])
  socket.destroy()
  await clock.advance(1_000)
  assert.deepEqual([unread.bytes, clock.pending, closed], [0, 0, []])
})

test('queued replies count against their client once the reply before them is sent', async (t) => {
  const { clock, unread, responses, answer, closed } = await setUpPipelined(t, 3)
  for (const response of responses.slice(1)) answer(response, REPLY)
  assert.ok(unread.bytes > 2 * REPLY)
  responses[0]?.end()
  await until('the next reply is in front', () => responses[1]?.socket !== null)
  assert.ok(responses[1]?.socket)
  const idle = await idleUntilClosed(clock, responses[1].socket)
  assert.ok(idle >= limits.stalled && idle <= limits.stalled + 1_000, `closed after ${idle} ms`)
  assert.deepEqual([closed, unread.bytes], [['stalled'], 0])
})
