import assert from 'node:assert/strict'
import type { IncomingMessage, ServerResponse } from 'node:http'
import { test, type TestContext } from 'node:test'
import { HttpListener } from '../../src/upstreams/http/http-listener.ts'
import { pause } from '../../src/mesh/clock.ts'
import { ManualClock } from '../support/manual-clock.ts'
import { until } from '../support/until.ts'
import { eventStream, wireTo } from '../support/wired.ts'

interface Get {
  readonly request: IncomingMessage
  readonly response: ServerResponse
}

/** A listener and its GET requests; `answer` handles each request. */
async function setUp(t: TestContext, answer: (get: Get, index: number) => void, { session = true } = {}) {
  const gets: Get[] = []
  const { wire } = await wireTo(t, (request, response) =>
    answer({ request, response }, gets.push({ request, response }) - 1),
  )
  const listened = session ? wire.inSession('session-1', '2025-11-25') : wire
  const clock = new ManualClock()
  const received: string[] = []
  const hooks = {
    ready: () => Promise.resolve(),
    asked: 0,
    lost: true,
    held: undefined as Promise<void> | undefined,
  }
  const listener = new HttpListener({
    clock,
    maxReply: 1_000_000,
    currentWire: () => listened,
    receive: (data) => {
      received.push(data)
      return hooks.held
    },
    ready: () => hooks.ready(),
    isLost: () => {
      hooks.asked++
      return Promise.resolve(hooks.lost)
    },
  })
  t.after(() => listener.close())
  return {
    wire,
    clock,
    gets,
    received,
    hooks,
    listener,
    asked: (count: number) => until(`${count} requests have come`, () => gets.length >= count),
    /** Waits until the listener has a timer for its next request. */
    resting: () => until('the listener pauses', () => listener.opening === undefined && clock.pending > 0),
    open: () =>
      gets.filter(({ response }) => response.headersSent && !response.destroyed && !response.writableEnded)
        .length,
  }
}

const stream = ({ response }: Get, text = '') => {
  response.writeHead(200, eventStream)
  response.flushHeaders()
  response.write(text)
}

test("the listener asks for the session's events, and passes them on", async (t) => {
  const { asked, gets, received, listener } = await setUp(t, (get) =>
    stream(get, 'id: 1\ndata: a\n\ndata: b\n\n'),
  )
  await asked(1)
  const { headers, method } = gets[0]!.request
  assert.deepEqual(
    [method, headers.accept, headers['mcp-session-id']],
    ['GET', 'text/event-stream', 'session-1'],
  )
  assert.equal(headers['last-event-id'], undefined)
  await until('both events have come', () => received.length === 2)
  assert.deepEqual(received, ['a', 'b'])
  assert.equal(listener.opening, undefined)
})

test('a slow consumer of events holds back later events', async (t) => {
  let release: () => void = () => undefined
  const { asked, hooks, gets, received } = await setUp(t, (get) => stream(get))
  await asked(1)
  hooks.held = new Promise<void>((resolve) => (release = resolve))
  gets[0]?.response.write('data: a\n\n')
  await until('the first event has come', () => received.length === 1)
  gets[0]?.response.write('data: b\n\n')
  await pause(20)
  assert.deepEqual(received, ['a'])
  release()
  await until('both events have come', () => received.length === 2)
})

test('a stream that ends is taken up again after a pause, behind the last event', async (t) => {
  const { asked, gets, clock, resting, received } = await setUp(t, (get, index) => {
    stream(get, `id: event-${index}\ndata: ${index}\n\n`)
    get.response.end()
  })
  for (let n = 1; n <= 3; n++) {
    await asked(n)
    await until('the event has come', () => received.length === n)
    await resting()
    await clock.advance(999)
    assert.equal(gets.length, n)
    await clock.advance(1)
  }
  await asked(4)
  assert.deepEqual(
    gets.map(({ request }) => request.headers['last-event-id']),
    [undefined, 'event-0', 'event-1', 'event-2'],
  )
})

test('a server may name the pause, within reason', async (t) => {
  for (const [retry, pauseMs] of [
    ['5000', 5_000],
    ['99999999999999999999', 30_000],
    ['0', 100],
  ] as const) {
    const { asked, gets, clock, resting } = await setUp(t, (get) => {
      stream(get, `retry: ${retry}\n\n`)
      get.response.end()
    })
    await asked(1)
    await resting()
    await clock.advance(pauseMs - 1)
    assert.equal(gets.length, 1, retry)
    await clock.advance(1)
    await asked(2)
  }
})

test('the pause doubles while streams break as soon as they are open, until one lasts', async (t) => {
  const { asked, gets, clock, resting } = await setUp(t, (get) => stream(get))
  for (const [index, pauseMs] of [1_000, 2_000, 4_000].entries()) {
    await asked(index + 1)
    const { response } = gets[index]!
    response.end()
    await resting()
    await clock.advance(pauseMs - 1)
    assert.equal(gets.length, index + 1, `${pauseMs}`)
    await clock.advance(1)
  }
  await asked(4)
  await until('the stream is open', () => clock.pending === 0)
  await clock.advance(30_000)
  gets[3]!.response.end()
  await resting()
  await clock.advance(1_000)
  await asked(5)
})

test('the pause doubles while the server fails, up to half a minute', async (t) => {
  const { asked, gets, clock, resting } = await setUp(t, ({ response }) => void response.writeHead(503).end())
  for (const [index, pauseMs] of [1_000, 2_000, 4_000, 8_000, 16_000, 30_000, 30_000].entries()) {
    await asked(index + 1)
    await resting()
    await clock.advance(pauseMs - 1)
    assert.equal(gets.length, index + 1, `${pauseMs}`)
    await clock.advance(1)
  }
  await asked(8)
})

test('a server without such a stream is not asked again', async (t) => {
  for (const status of [405, 404, 400, 401, 200]) {
    const { asked, gets, clock, listener, hooks } = await setUp(
      t,
      ({ response }) => void response.writeHead(status).end(),
      { session: false },
    )
    await asked(1)
    await until('the listener knows that the server has no stream', () => listener.opening === undefined)
    await clock.advance(1_000_000)
    assert.deepEqual([gets.length, hooks.asked, clock.pending], [1, 0, 0], `status ${status}`)
  }
})

test('a caller waits for the stream until it is open, or for a second', async (t) => {
  const held: Get[] = []
  const { asked, listener, clock } = await setUp(t, (get) => held.push(get))
  let settled = 0
  void listener.opening?.then(() => settled++)
  await asked(1)
  await clock.advance(999)
  assert.equal(settled, 0)
  await clock.advance(1)
  assert.equal(settled, 1)
  stream(held[0]!)
})

test('a listener that is closed lets go of its stream, and does not come back', async (t) => {
  const { asked, gets, clock, listener, received, open } = await setUp(t, (get) => stream(get))
  await asked(1)
  listener.close()
  await until('the stream is closed', () => open() === 0)
  gets[0]?.response.write('data: late\n\n')
  await clock.advance(1_000_000)
  assert.deepEqual([gets.length, received, clock.pending], [1, [], 0])
})
