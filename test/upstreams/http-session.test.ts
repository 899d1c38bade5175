import assert from 'node:assert/strict'
import type { ServerResponse } from 'node:http'
import { test, type TestContext } from 'node:test'
import type { Message } from '../../src/mesh/call.ts'
import { Cancellation } from '../../src/mesh/cancel.ts'
import { gatewayError } from '../../src/mesh/errors.ts'
import { UnderWay } from '../../src/upstreams/http/http-exchange.ts'
import { HttpSession, SessionChecks } from '../../src/upstreams/http/http-session.ts'
import { SessionState } from '../../src/upstreams/shared/session-state.ts'
import { Unread } from '../../src/upstreams/unread.ts'
import { capableClient, newCall, TestChannel } from '../support/caller.ts'
import { ManualClock } from '../support/manual-clock.ts'
import type { Json } from '../support/memory-pipe.ts'
import { until } from '../support/until.ts'
import { wireTo } from '../support/wired.ts'

const initializeResult = {
  protocolVersion: '2025-06-18',
  capabilities: {},
  serverInfo: { name: 's', version: '1' },
}

interface Asked {
  readonly id: unknown
  readonly method: string
  readonly session: string | undefined
  readonly response: ServerResponse
}

/** Answers a request; false leaves the request to the server's default. */
type Play = (asked: Asked) => boolean

/** A session at a server that knows only sessions it opened. `got` lists requests as `method @session-id`. */
async function session(t: TestContext, reply: Json = { result: initializeResult }, maxReply = 100_000) {
  const got: string[] = []
  const known = new Set<string>()
  let opened = 0
  const server: { play: Play } = { play: () => false }
  const { wire } = await wireTo(t, (request, response) => {
    let body = ''
    request.on('data', (chunk: Buffer) => (body += chunk.toString()))
    request.on('end', () => {
      const named = request.headers['mcp-session-id'] as string | undefined
      if (request.method === 'DELETE') {
        got.push(`DELETE @${named}`)
        known.delete(String(named))
        return void response.writeHead(204).end()
      }
      const { id, method } = JSON.parse(body) as { id?: unknown; method: string }
      got.push(`${method} @${named}`)
      if (server.play({ id, method, session: named, response })) return
      if (named !== undefined && !known.has(named)) return void response.writeHead(404).end()
      if (id === undefined) return void response.writeHead(202).end()
      if (method === 'initialize') known.add(`session-${++opened}`)
      const started = method === 'initialize' ? { 'mcp-session-id': `session-${opened}` } : {}
      response.writeHead(200, { 'content-type': 'application/json', ...started })
      response.end(
        JSON.stringify({ jsonrpc: '2.0', id, ...(method === 'initialize' ? reply : { result: {} }) }),
      )
    })
  })
  const clock = new ManualClock()
  const state = new SessionState()
  const farewells: Promise<void>[] = []
  let reopened = 0
  const owner = Object.assign(new TestChannel(), {
    initializeParams: capableClient,
    state,
    surfaces: false,
    ended: new AbortController().signal,
    clock,
    maxReply,
    ackMs: 5_000,
    underWay: new UnderWay(),
    unread: new Unread({ messages: 8, bytes: 1_000 }),
    hasAnswered: () => false,
    reopened: () => void reopened++,
  })
  const terms = {
    server: 'test',
    handshakeMs: 10_000,
    checks: new SessionChecks(),
    shared: (said: Message) => said,
    onFarewell: (farewell: Promise<void>) => void farewells.push(farewell),
  }
  const held = new HttpSession(terms, owner, wire)
  const signal = new AbortController().signal
  return { held, got, known, state, server, clock, farewells, signal, reopened: () => reopened }
}

test('a handshake tells what the server said, and later requests name the session', async (t) => {
  const { held, got, signal } = await session(t)
  await held.open(signal)
  assert.deepEqual(held.initializeResult.value, initializeResult)
  assert.equal(held.initializeResult.text, JSON.stringify(initializeResult))
  assert.equal(held.wire.sessionId, 'session-1')
  assert.deepEqual(got, ['initialize @undefined', 'notifications/initialized @session-1'])
})

test('a server that refuses, or says nothing of use, leaves no initialize result', async (t) => {
  const refused = await session(t, { error: { code: -32600, message: 'not you' } })
  await assert.rejects(refused.held.open(refused.signal), {
    reason: 'upstream_refused',
    message: 'initialize failed: not you',
  })
  assert.deepEqual(refused.got, ['initialize @undefined'])
})

test('a lost session is opened once for all who lost it, and told what the old one knew', async (t) => {
  const { held, got, known, state, reopened, signal } = await session(t)
  await held.open(signal)
  state.note(newCall({ method: 'resources/subscribe', params: { uri: 'file:///a' } }))
  const { wire } = held
  known.clear()
  got.length = 0
  assert.deepEqual(await Promise.all([held.fateOf(wire), held.fateOf(wire)]), ['forgotten', 'forgotten'])
  assert.equal(held.lost, true)
  await Promise.all([held.reopen(), held.reopen(), held.reopen()])
  assert.equal(held.lost, false)
  assert.equal(held.wire.sessionId, 'session-2')
  assert.deepEqual(got, [
    'ping @session-1',
    'initialize @undefined',
    'notifications/initialized @session-2',
    'resources/subscribe @session-2',
    'ping @session-2',
  ])
  assert.equal(reopened(), 1)
})

test('a late report of a lost session does not drop the session opened since', async (t) => {
  const { held, got, known, signal } = await session(t)
  await held.open(signal)
  const { wire } = held
  known.clear()
  await held.fateOf(wire)
  await held.reopen()
  got.length = 0
  assert.equal(await held.fateOf(wire), 'forgotten')
  assert.equal(held.lost, false)
  await held.reopen()
  assert.deepEqual(got, [])
})

test('a session that answers a ping is not lost, whatever another reply looked like', async (t) => {
  const { held, signal } = await session(t)
  await held.open(signal)
  assert.equal(await held.fateOf(held.wire), 'known')
  assert.equal(held.lost, false)
})

test('a server that refuses the ping of a new session too has proven nothing', async (t) => {
  const { held, server, signal } = await session(t)
  await held.open(signal)
  const { wire } = held
  server.play = ({ method, response }) => {
    if (method === 'ping') response.writeHead(404).end()
    return method === 'ping'
  }
  assert.equal(await held.fateOf(wire), 'forgotten')
  await held.reopen()
  assert.equal(await held.fateOf(wire), 'unclear')
})

test('a server that does not say whether it knows a session leaves that open, and the session in use', async (t) => {
  const { held, server, clock, signal } = await session(t)
  await held.open(signal)
  server.play = ({ response }) => {
    response.destroy()
    return true
  }
  assert.equal(await held.fateOf(held.wire), 'unclear')
  let asked = false
  server.play = () => (asked = true)
  const hanging = held.fateOf(held.wire)
  await until('the server was asked', () => asked)
  for (let second = 0; second < 9; second++) await clock.advance(1_000)
  assert.equal(await hanging, 'unclear')
  assert.equal(held.lost, false)
})

test('a session that could not be opened again is still lost, and tried once more', async (t) => {
  const { held, known, server, reopened, signal } = await session(t)
  await held.open(signal)
  known.clear()
  await held.fateOf(held.wire)
  server.play = ({ response }) => {
    response.destroy()
    return true
  }
  await assert.rejects(held.reopen(), { reason: 'upstream_disconnected' })
  assert.equal(held.lost, true)
  server.play = () => false
  await held.reopen()
  assert.equal(reopened(), 1)
})

test('a handshake that hangs is given up, whoever waits for it', async (t) => {
  const { held, known, server, clock, signal } = await session(t)
  await held.open(signal)
  known.clear()
  await held.fateOf(held.wire)
  let asked = false
  server.play = () => (asked = true)
  const hanging = assert.rejects(held.reopen(), { reason: 'attempt_timeout' })
  await until('the server was asked', () => asked)
  // Later attempts beside the first may use their full timeouts.
  for (let second = 0; second < 14; second++) await clock.advance(1_000)
  await hanging
})

test('a server that never acknowledges the end of the handshake is not waited for', async (t) => {
  const { held, server, clock, signal } = await session(t)
  let told = false
  server.play = ({ method }) => (told ||= method === 'notifications/initialized')
  const opening = held.open(signal)
  await until('the server was told', () => told)
  await clock.advance(1_000)
  await opening
  assert.equal(held.wire.sessionId, 'session-1')
})

test('a client that gives up a handshake leaves no session behind', async (t) => {
  const { held, got, server, farewells } = await session(t)
  const signal = new Cancellation()
  let answer: (() => void) | undefined
  server.play = ({ id, method, response }) => {
    if (method !== 'initialize') return false
    answer = () => {
      response.writeHead(200, { 'content-type': 'application/json', 'mcp-session-id': 'late' })
      response.end(JSON.stringify({ jsonrpc: '2.0', id, result: initializeResult }))
    }
    return true
  }
  const opening = assert.rejects(held.open(signal), { reason: 'cancelled' })
  await until('the server was asked', () => answer !== undefined)
  signal.abort(gatewayError('cancelled', 'not needed'))
  await opening
  answer?.()
  await Promise.all(farewells)
  assert.deepEqual(got, ['initialize @undefined', 'DELETE @late'])
})

test('a version no header can hold, or a result too large to keep, ends the handshake', async (t) => {
  for (const [more, message] of [
    [{ protocolVersion: '2025-06-18\r\nx: y' }, /speaks version 2025-06-18/],
    [{ protocolVersion: '\u0000é' }, /unknown to Breakwater/],
    [{ protocolVersion: { toString: 1 } }, /\(none is named\)/],
    [{ instructions: 'x'.repeat(300 * 1024) }, /larger than 262144 bytes/],
  ] as const) {
    const { held, got, farewells, signal } = await session(
      t,
      { result: { ...initializeResult, ...more } },
      1_000_000,
    )
    await assert.rejects(held.open(signal), { message })
    await Promise.all(farewells)
    assert.deepEqual(got, ['initialize @undefined', 'DELETE @session-1'])
  }
  for (const id of ['x'.repeat(4_097), 'two words', 'caf\u00e9', 'tab\there']) {
    const { held, server, signal } = await session(t)
    server.play = ({ id: request, method, response }) => {
      if (method !== 'initialize') return false
      response.writeHead(200, { 'content-type': 'application/json', 'mcp-session-id': id })
      response.end(JSON.stringify({ jsonrpc: '2.0', id: request, result: initializeResult }))
      return true
    }
    await assert.rejects(held.open(signal), { reason: 'bad_reply', message: /visible ASCII characters/ })
  }
})
