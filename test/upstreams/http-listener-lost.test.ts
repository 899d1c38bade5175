import assert from 'node:assert/strict'
import type { ServerResponse } from 'node:http'
import { test, type TestContext } from 'node:test'
import { HttpListener } from '../../src/upstreams/http/http-listener.ts'
import { ManualClock } from '../support/manual-clock.ts'
import { until } from '../support/until.ts'
import { eventStream, wireTo } from '../support/wired.ts'

/** A listener to a server with one valid session; `reopen` stands for the link's reaction to a lost session. */
async function setUp(t: TestContext) {
  const known = { session: 'session-1' }
  const gets: { session: unknown; lastEventId: unknown; response: ServerResponse }[] = []
  const { wire } = await wireTo(t, ({ headers }, response) => {
    gets.push({ session: headers['mcp-session-id'], lastEventId: headers['last-event-id'], response })
    if (headers['mcp-session-id'] !== known.session) return void response.writeHead(404).end()
    response.writeHead(200, eventStream)
    response.write('id: 7\ndata: hello\n\n')
  })
  let listened = wire.inSession(known.session, '2025-11-25')
  const clock = new ManualClock()
  let stale = false
  const received: string[] = []
  const reopen = () => {
    stale = false
    listened = wire.inSession(known.session, '2025-11-25')
    listener.restart()
  }
  const listener: HttpListener = new HttpListener({
    clock,
    currentWire: () => listened,
    maxReply: 1_000_000,
    receive: (data) => void received.push(data),
    // A handshake takes some turns.
    ready: async () => {
      if (!stale) return
      await Promise.resolve()
      reopen()
    },
    isLost: () => Promise.resolve((stale = true)),
  })
  t.after(() => listener.close())
  return {
    known,
    gets,
    clock,
    listener,
    received,
    reopen,
    open: () =>
      gets.filter(({ response }) => response.headersSent && !response.destroyed && !response.writableEnded)
        .length,
  }
}

test('a session that the listener finds lost is opened again, and listened to once', async (t) => {
  const { known, gets, clock, open, received, listener } = await setUp(t)
  await until('the stream is open', () => received.length === 1)
  known.session = 'session-2'
  gets[0]?.response.end()
  await until('the listener pauses', () => clock.pending > 0)
  await clock.advance(1_000)
  await until('the listener was refused', () => gets.length === 2 && clock.pending > 0)
  for (let second = 0; second < 10; second++) await clock.advance(1_000)
  await until('the new stream is open', () => received.length >= 2)
  for (let second = 0; second < 5; second++) await clock.advance(1_000)
  assert.equal(gets[1]?.lastEventId, '7')
  assert.deepEqual(
    gets.slice(2).map(({ session, lastEventId }) => [session, lastEventId]),
    [['session-2', undefined]],
  )
  assert.equal(open(), 1)
  listener.close()
  await until('no stream is left', () => open() === 0)
})

test('a session that a call finds lost is listened to anew, and the old stream is let go of', async (t) => {
  const { known, gets, clock, open, received, reopen } = await setUp(t)
  await until('the stream is open', () => received.length === 1)
  known.session = 'session-2'
  reopen()
  await clock.advance(0)
  await until('the new stream is open', () => received.length === 2)
  await until('the old stream is closed', () => open() === 1)
  assert.deepEqual(
    gets.map(({ session }) => session),
    ['session-1', 'session-2'],
  )
})
