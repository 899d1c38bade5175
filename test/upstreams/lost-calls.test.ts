import assert from 'node:assert/strict'
import type { ServerResponse } from 'node:http'
import { test, type TestContext } from 'node:test'
import { Cancellation, type Signal } from '../../src/mesh/cancel.ts'
import type { Clock } from '../../src/mesh/clock.ts'
import { gatewayError } from '../../src/mesh/errors.ts'
import { HttpUpstream } from '../../src/upstreams/http/http.ts'
import { TestCaller, toolCall } from '../support/caller.ts'
import { ManualClock } from '../support/manual-clock.ts'
import { events, httpOptions, json, rawHttp } from '../support/modern.ts'
import { until } from '../support/until.ts'

/** Tools that run; the test gives their replies. */
type Tools = Readonly<Record<string, (server: Playing, response: ServerResponse) => void>>

/** A server that knows only sessions it opened. */
interface Playing {
  readonly known: Set<string>
  /** Tools that ran, oldest first. */
  readonly ran: string[]
  /** When true, the server acknowledges nothing. */
  isMute: boolean
  /** Replies to a request in an unknown session. */
  refuse: (response: ServerResponse, id: unknown) => void
  /** When true, the server answers pings in unknown sessions. */
  takesPings: boolean
  /** Replies to `initialize` in another way; false leaves the request to the server's default. */
  greet: (response: ServerResponse, id: unknown) => boolean
}

const bare =
  (status: number, headers: Readonly<Record<string, string>> = {}) =>
  (response: ServerResponse): void =>
    void response.writeHead(status, headers).end()

const error =
  (status: number, code: number, message: string) =>
  (response: ServerResponse, id: unknown): void =>
    json(response, { jsonrpc: '2.0', id: id ?? null, error: { code, message } }, status)

async function setUp(t: TestContext, tools: Tools, clock: Clock = new ManualClock(), more: object = {}) {
  let opened = 0
  const playing: Playing = {
    known: new Set(),
    ran: [],
    isMute: false,
    takesPings: false,
    refuse: bare(404),
    greet: () => false,
  }
  const { url, came } = await rawHttp(t, ({ method, headers, body }, response) => {
    if (method !== 'POST') return void response.writeHead(405).end()
    if (body.method === 'initialize') {
      if (playing.greet(response, body.id)) return
      const id = `session-${++opened}`
      playing.known.add(id)
      response.setHeader('mcp-session-id', id)
      const serverInfo = { name: 's', version: '1' }
      const result = { protocolVersion: '2025-11-25', capabilities: { tools: {} }, serverInfo }
      return void json(response, { jsonrpc: '2.0', id: body.id, result })
    }
    const isKnown = playing.known.has(String(headers['mcp-session-id']))
    if (!isKnown && !(playing.takesPings && body.method === 'ping')) return playing.refuse(response, body.id)
    if (body.id === undefined) return playing.isMute ? undefined : void response.writeHead(202).end()
    if (body.method === 'ping') return void json(response, { jsonrpc: '2.0', id: body.id, result: {} })
    if (body.method === 'tools/list')
      return void json(response, { jsonrpc: '2.0', id: body.id, result: { tools: [] } })
    const name = String(body.params?.name)
    playing.ran.push(name)
    tools[name]?.(playing, response)
  })
  const upstream = new HttpUpstream({ ...httpOptions(url, clock), ...more })
  t.after(() => upstream.close())
  const caller = new TestCaller()
  const upstreamSession = await upstream.open(caller, new AbortController().signal)
  const call = (name: string, signal: Signal = new AbortController().signal) =>
    upstreamSession.exchange(toolCall(name, {}, { caller, signal, id: 1 }))
  const count = (method: string) => came.filter(({ body }) => body.method === method).length
  const initializes = () => count('initialize')
  const another = () => upstream.open(new TestCaller(), new AbortController().signal)
  return { playing, upstreamSession, another, call, came, count, initializes }
}

const wellDone = (_: Playing, response: ServerResponse) => {
  json(response, { jsonrpc: '2.0', id: 1, result: { content: [] } })
}

test('calls that a server forgot before they ran open the session once, and run once', async (t) => {
  const { playing, call, initializes } = await setUp(t, { work: wellDone })
  playing.known.clear()
  const outcomes = await Promise.all(Array.from({ length: 20 }, () => call('work')))
  assert.deepEqual(
    outcomes.map(({ kind }) => kind),
    Array.from({ length: 20 }, () => 'answered'),
  )
  assert.equal(playing.ran.length, 20)
  assert.equal(initializes(), 2)
})

test('a call in which session after session is lost is sent again once, and may have run', async (t) => {
  const { playing, call } = await setUp(t, {
    logout({ known }, response) {
      known.clear()
      response.writeHead(404).end()
    },
  })
  const outcome = await call('logout')
  assert.ok(outcome.kind === 'failed')
  assert.deepEqual([outcome.error.reason, outcome.error.sent], ['upstream_disconnected', true])
  assert.equal(playing.ran.length, 2)
})

test('a call that began before another one was answered was known to the server, and is not sent again', async (t) => {
  const held: ServerResponse[] = []
  const { playing, call, initializes } = await setUp(t, {
    slow: (_, response) => void held.push(response),
    quick: wellDone,
  })
  const slow = call('slow')
  await until('the slow tool has begun', () => held.length === 1)
  assert.equal((await call('quick')).kind, 'answered')
  playing.known.clear()
  held[0]?.writeHead(404).end()
  const outcome = await slow
  assert.ok(outcome.kind === 'failed')
  assert.deepEqual([outcome.error.reason, outcome.error.sent], ['upstream_disconnected', true])
  assert.equal((await call('quick')).kind, 'answered')
  assert.deepEqual(playing.ran, ['slow', 'quick', 'quick'])
  assert.equal(initializes(), 2)
})

test('the gateway ends a reopened session nobody needs', async (t) => {
  const { playing, upstreamSession, call, came } = await setUp(t, { work: wellDone })
  playing.known.clear()
  playing.isMute = true
  const sent = call('work')
  const initialized = () => came.filter(({ body }) => body.method === 'notifications/initialized').length
  await until('the new session waits to be acknowledged', () => initialized() === 2)
  await upstreamSession.close()
  assert.equal((await sent).kind, 'failed')
  const ended = () =>
    came.filter(({ method }) => method === 'DELETE').map(({ headers }) => headers['mcp-session-id'])
  await until('the new session is ended', () => ended().includes('session-2'))
})

/** Ambiguous replies: a lost session at some servers, something else at others. */
const vague: Readonly<Record<string, Playing['refuse']>> = {
  '200 with -32001': error(200, -32001, 'Session not found'),
  '200 with -32600': error(200, -32600, 'Invalid Request'),
  '200 with words of sessions': error(200, -32603, 'Server not initialized'),
  'a stream with -32001': (response, id) => {
    events(response)({ jsonrpc: '2.0', id, error: { code: -32001, message: 'Session not found' } })
    response.end()
  },
  'an empty 400': bare(400),
  401: error(401, -32001, 'Session expired'),
  'an empty 401': bare(401),
  403: bare(403),
  409: error(409, -32000, 'Conflict'),
  500: error(500, -32603, 'Session not found'),
  'an empty 502': bare(502),
  503: error(503, -32001, 'MCP session is unknown on this instance'),
  'an empty 202': bare(202),
  'an empty 204': bare(204),
  'a page to log in at': bare(302, { location: '/login' }),
  421: bare(421),
  422: bare(422),
  'words under 200': (response) =>
    void response.writeHead(200, { 'content-type': 'text/plain' }).end('expired'),
  'an error without an id': (response) =>
    json(response, { jsonrpc: '2.0', id: null, error: { code: -32001, message: 'Session not found' } }),
  'an empty stream': (response) => {
    events(response)
    response.end()
  },
  'an open stream with an error without an id': (response) => {
    events(response)({ jsonrpc: '2.0', id: null, error: { code: -32001, message: 'Session not found' } })
  },
  'an open stream with an error of no request': (response) => {
    events(response)({ jsonrpc: '2.0', id: 'server-error', error: { code: -32600, message: 'Bad Request' } })
  },
}

/** Replies to requests other than pings, from servers that answer pings in any session. */
const withPings: Readonly<Record<string, Playing['refuse']>> = {
  '200 with -32000': error(200, -32000, 'Server not initialized'),
  '200 with -32001': error(200, -32001, 'Session not found'),
  'the words of invalid parameters': error(200, -32602, 'Invalid request parameters'),
  'an unknown client': error(200, -32000, 'Unknown client'),
  'an empty 404': bare(404),
  404: error(404, -32001, 'Session not found'),
  'an empty 406': bare(406),
  401: error(401, -32001, 'Session expired'),
  500: error(500, -32603, 'Session not found'),
  'an empty 502': bare(502),
}

for (const [told, refuse] of Object.entries(vague)) {
  test(`a session a server reports lost by ${told} is opened again, and no call runs twice`, async (t) => {
    const { playing, call, initializes } = await setUp(t, { work: wellDone })
    assert.equal((await call('work')).kind, 'answered')
    playing.known.clear()
    playing.refuse = refuse
    const [first, ...rest] = await Promise.all([call('work'), call('work'), call('work')])
    const isError =
      first.kind === 'failed' || (first.kind === 'answered' && first.result.value.error !== undefined)
    assert.ok(isError, 'the call keeps its answer')
    assert.deepEqual(
      rest.map(({ kind }) => kind),
      [first.kind, first.kind],
    )
    assert.deepEqual(playing.ran, ['work'])
    const again = await call('work')
    assert.ok(again.kind === 'answered' && again.result.value.error === undefined)
    assert.deepEqual(playing.ran, ['work', 'work'])
    assert.equal(initializes(), 2)
  })
}

for (const [told, refuse] of Object.entries(withPings)) {
  test(`a session a server reports lost by ${told}, though it answers pings, is opened again`, async (t) => {
    const { playing, call, initializes } = await setUp(t, { work: wellDone })
    assert.equal((await call('work')).kind, 'answered')
    playing.known.clear()
    playing.takesPings = true
    playing.refuse = refuse
    await call('work')
    assert.deepEqual(playing.ran, ['work'])
    const again = await call('work')
    assert.ok(again.kind === 'answered' && again.result.value.error === undefined)
    assert.deepEqual([playing.ran, initializes()], [['work', 'work'], 2])
  })
}

const UNBEGUN = 'Received request before initialization was complete'

for (const [told, refuse] of Object.entries<Playing['refuse']>({
  'JSON under 200': error(200, -32602, UNBEGUN),
  'JSON under 400': error(400, -32602, UNBEGUN),
  'a stream': (response, id) => {
    events(response)({ jsonrpc: '2.0', id, error: { code: -32602, message: UNBEGUN } })
    response.end()
  },
}))
  test(`a session that a server says has never begun is opened again though it takes pings: ${told}`, async (t) => {
    const { playing, call, initializes } = await setUp(t, { work: wellDone })
    assert.equal((await call('work')).kind, 'answered')
    playing.known.clear()
    playing.takesPings = true
    playing.refuse = refuse
    const lost = await call('work')
    assert.ok(lost.kind === 'answered' && lost.result.value.error !== undefined, 'the call keeps its answer')
    assert.deepEqual(playing.ran, ['work'])
    const again = await call('work')
    assert.ok(again.kind === 'answered' && again.result.value.error === undefined)
    assert.deepEqual([playing.ran, initializes()], [['work', 'work'], 2])
  })

test('a session in which a server breaks each connection, and no other, is opened again', async (t) => {
  const { playing, call, initializes, count } = await setUp(t, { work: wellDone })
  playing.known.clear()
  playing.refuse = (response) => void response.destroy()
  const outcome = await call('work')
  assert.ok(outcome.kind === 'failed')
  assert.deepEqual([outcome.error.reason, outcome.error.sent], ['upstream_disconnected', true])
  assert.deepEqual(playing.ran, [])
  // Three rounds of a list in each session, after the first list.
  await until('the session is checked', () => count('tools/list') === 7 && initializes() === 2)
  await until('the next call is answered', async () => (await call('work')).kind === 'answered')
  assert.equal(initializes(), 2)
})

for (const [told, refuse] of [
  ['an empty 410', bare(410)],
  ['410', error(410, -32001, 'Session terminated')],
] as const) {
  test(`a call that a server turns down by ${told} for an unknown session runs once in a new one`, async (t) => {
    const { playing, call, initializes } = await setUp(t, { work: wellDone })
    playing.known.clear()
    playing.refuse = refuse
    assert.equal((await call('work')).kind, 'answered')
    assert.deepEqual(playing.ran, ['work'])
    assert.equal(initializes(), 2)
  })
}

test('a write whose server fails after it ran is not sent again, though the session is lost with it', async (t) => {
  for (const refuse of Object.values(vague)) {
    const { playing, call } = await setUp(t, {
      write({ known }, response) {
        known.clear()
        refuse(response, 1)
      },
      work: wellDone,
    })
    playing.refuse = refuse
    await call('write')
    assert.equal((await call('work')).kind, 'answered')
    assert.deepEqual(playing.ran, ['write', 'work'])
  }
})

for (const [told, refuse] of Object.entries<Playing['refuse']>({
  404: error(404, -32001, 'Session not found'),
  'an empty 410': bare(410),
  400: error(400, -32000, 'Bad Request: No valid session ID provided'),
}))
  test(`a write that ran for longer than a refusal takes is not sent again, though its session ended: ${told}`, async (t) => {
    const clock = new ManualClock()
    const held: ServerResponse[] = []
    const slow = (_: Playing, response: ServerResponse) => void held.push(response)
    const { playing, call, initializes } = await setUp(t, { slow, work: wellDone }, clock)
    const write = call('slow')
    await until('the write runs', () => held.length === 1)
    await clock.advance(1_500)
    playing.known.clear()
    playing.refuse = refuse
    refuse(held[0] as ServerResponse, 1)
    const outcome = await write
    assert.ok(outcome.kind === 'failed')
    assert.deepEqual([outcome.error.reason, outcome.error.sent], ['upstream_disconnected', true])
    assert.equal((await call('work')).kind, 'answered')
    assert.deepEqual([playing.ran, initializes()], [['slow', 'work'], 2])
  })

test('a failing tool costs a healthy session an occasional list, and nothing else', async (t) => {
  const clock = new ManualClock()
  const { call, count } = await setUp(t, { broken: (_, response) => bare(500)(response) }, clock)
  for (let i = 0; i < 50; i++) assert.equal((await call('broken')).kind, 'failed')
  assert.deepEqual([count('tools/list'), count('initialize')], [1, 1])
  await clock.advance(5_000)
  for (let i = 0; i < 50; i++) assert.equal((await call('broken')).kind, 'failed')
  assert.deepEqual([count('tools/list'), count('initialize')], [2, 1])
})

test('a tool that fails as if the session were lost costs a healthy session a ping now and then', async (t) => {
  const clock = new ManualClock()
  const { call, count } = await setUp(
    t,
    { broken: (_, response) => error(404, -32001, 'Session not found')(response, 1) },
    clock,
  )
  for (let i = 0; i < 50; i++) assert.equal((await call('broken')).kind, 'answered')
  assert.deepEqual([count('ping'), count('tools/list'), count('initialize')], [1, 1, 1])
  await clock.advance(1_000)
  for (let i = 0; i < 50; i++) assert.equal((await call('broken')).kind, 'answered')
  assert.deepEqual([count('ping'), count('tools/list'), count('initialize')], [2, 1, 1])
})

test('a healthy session survives whatever backend errors a tool repeats', async (t) => {
  const relayed = error(200, -32603, `backend: ${UNBEGUN}`)
  const { call, count, playing } = await setUp(t, {
    proxy: (_, response) => relayed(response, 1),
    work: wellDone,
  })
  for (let i = 0; i < 5; i++) await Promise.all([call('proxy'), call('work')])
  assert.deepEqual([count('initialize'), playing.ran.length], [1, 10])
})

test('a server that refuses everybody is asked for new sessions at a bounded rate, and loses no session', async (t) => {
  const clock = new ManualClock()
  const { playing, another, count } = await setUp(t, { work: wellDone }, clock)
  const sessions = await Promise.all(Array.from({ length: 40 }, another))
  const opened = count('initialize')
  const work = () => Promise.all(sessions.map((session) => session.exchange(toolCall('work', {}, { id: 1 }))))
  const known = [...playing.known]
  playing.known.clear()
  playing.refuse = bare(401)
  playing.greet = (response) => {
    bare(401)(response)
    return true
  }
  for (let i = 0; i < 10; i++) await work()
  assert.ok(count('tools/list') <= 16, `${count('tools/list')} lists`)
  assert.equal(count('initialize') - opened, count('tools/list'))
  await clock.advance(5_000)
  for (let i = 0; i < 10; i++) await work()
  assert.ok(count('tools/list') <= 26, `${count('tools/list')} lists`)
  assert.equal(count('initialize') - opened, count('tools/list'))
  // The server takes the credentials again: no call was moved to another session meanwhile.
  for (const id of known) playing.known.add(id)
  assert.ok((await work()).every(({ kind }) => kind === 'answered'))
})

test('a server that forgets each session with its first call is asked for new ones at a bounded rate', async (t) => {
  const clock = new ManualClock()
  const forget = ({ known }: Playing, response: ServerResponse) => {
    known.clear()
    bare(404)(response)
  }
  const { call, initializes, count } = await setUp(t, { work: forget, rest: wellDone }, clock)
  // Each call uses up one session; the first call also uses up its initial session.
  for (let i = 0; i < 3; i++) assert.equal((await call('work')).kind, 'failed')
  const opened = initializes()
  const held = call('rest')
  await until('the call waits', () => clock.pending > 0)
  assert.equal(initializes(), opened)
  await clock.advance(1_000)
  assert.equal((await held).kind, 'answered')
  assert.equal(initializes(), opened + 1)
  assert.ok(count('ping') > 0)
  // A call succeeded, so the next lost session is reopened at once.
  assert.equal((await call('work')).kind, 'failed')
  assert.equal((await call('rest')).kind, 'answered')
})

test('a server that refuses now and then, whatever the session, keeps its sessions', async (t) => {
  const clock = new ManualClock()
  const { playing, call, came } = await setUp(t, { work: wellDone }, clock)
  const [first] = playing.known
  let shed = 0
  playing.known.delete(String(first))
  // The session still exists: the server sheds two of three requests.
  playing.refuse = (response, id) => {
    if (shed++ % 3 < 2) bare(503)(response)
    else json(response, { jsonrpc: '2.0', id, result: {} })
  }
  for (let i = 0; i < 5; i++) {
    await call('work')
    await clock.advance(5_000)
  }
  const kept = came.filter(({ body }) => body.method === 'tools/call')
  assert.deepEqual(new Set(kept.map(({ headers }) => headers['mcp-session-id'])), new Set([first]))
})

test('a lost session its caller has to know of is not replaced', async (t) => {
  const { playing, call } = await setUp(t, { work: wellDone }, new ManualClock(), {
    sessionRecovery: 'surface',
  })
  playing.known.clear()
  playing.refuse = bare(503)
  assert.ok((await call('work')).kind === 'failed')
  const outcome = await call('work')
  assert.ok(outcome.kind === 'failed' && outcome.error.reason === 'session_lost')
})

test('a call that a server turned down for an unknown session was not sent, though the new session hangs', async (t) => {
  const { playing, call, count } = await setUp(t, { work: wellDone })
  playing.known.clear()
  playing.refuse = error(404, -32001, 'Session not found')
  playing.greet = () => true
  const signal = new Cancellation()
  const hanging = call('work', signal)
  await until('the server is asked for a new session', () => count('initialize') === 2)
  signal.abort(gatewayError('deadline_exceeded', 'too late', { sent: true }))
  const outcome = await hanging
  assert.ok(outcome.kind === 'failed')
  assert.deepEqual([outcome.error.reason, outcome.error.sent], ['deadline_exceeded', false])
  assert.deepEqual(playing.ran, [])
})
