import assert from 'node:assert/strict'
import type { ServerResponse } from 'node:http'
import { test, type TestContext } from 'node:test'
import { HttpUpstream } from '../../src/upstreams/http/http.ts'
import { TestCaller, toolCall } from '../support/caller.ts'
import { httpOptions, json, rawHttp } from '../support/modern.ts'
import { until } from '../support/until.ts'

/** A tool that runs, and whose reply a test gives. */
type Tools = Readonly<Record<string, (server: Playing, response: ServerResponse) => void>>

/** A server that knows the sessions which it has opened. */
interface Playing {
  readonly known: Set<string>
  /** Tools that ran, oldest first. */
  readonly ran: string[]
  /** Whether it acknowledges nothing. */
  isMute: boolean
}

async function setUp(t: TestContext, tools: Tools) {
  let opened = 0
  const playing: Playing = { known: new Set(), ran: [], isMute: false }
  const { url, came } = await rawHttp(t, ({ method, headers, body }, response) => {
    if (method !== 'POST') return void response.writeHead(405).end()
    if (body.method === 'initialize') {
      const id = `session-${++opened}`
      playing.known.add(id)
      response.setHeader('mcp-session-id', id)
      const serverInfo = { name: 's', version: '1' }
      const result = { protocolVersion: '2025-11-25', capabilities: {}, serverInfo }
      return void json(response, { jsonrpc: '2.0', id: body.id, result })
    }
    if (!playing.known.has(String(headers['mcp-session-id']))) return void response.writeHead(404).end()
    if (body.id === undefined) return playing.isMute ? undefined : void response.writeHead(202).end()
    if (body.method === 'ping') return void json(response, { jsonrpc: '2.0', id: body.id, result: {} })
    const name = String(body.params?.name)
    playing.ran.push(name)
    tools[name]?.(playing, response)
  })
  const upstream = new HttpUpstream(httpOptions(url))
  t.after(() => upstream.close())
  const caller = new TestCaller()
  const upstreamSession = await upstream.open(caller, new AbortController().signal)
  const call = (name: string) => upstreamSession.exchange({ ...toolCall(name, {}, { caller }), id: 1 })
  const initializes = () => came.filter(({ body }) => body.method === 'initialize').length
  return { playing, upstreamSession, call, came, initializes }
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

test('a session that is opened again for nobody is ended', async (t) => {
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
