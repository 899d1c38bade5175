import assert from 'node:assert/strict'
import { test, type TestContext } from 'node:test'
import { postAway } from '../../src/upstreams/http/http-post.ts'
import { HttpSession } from '../../src/upstreams/http/http-session.ts'
import { capableHello, newCall, TestChannel } from '../support/caller.ts'
import { ManualClock } from '../support/manual-clock.ts'
import type { Json } from '../support/memory-pipe.ts'
import { wireTo } from '../support/wired.ts'

const greeting = { protocolVersion: '2025-06-18', capabilities: {}, serverInfo: { name: 's', version: '1' } }

/** A session at a server that answers `initialize` with this, and what the server got: `method @session-id`. */
async function session(t: TestContext, reply: Json = { result: greeting }) {
  const got: string[] = []
  let opened = 0
  const { wire } = await wireTo(t, (request, response) => {
    let body = ''
    request.on('data', (chunk: Buffer) => (body += chunk.toString()))
    request.on('end', () => {
      const { id, method } = JSON.parse(body) as Json
      got.push(`${String(method)} @${String(request.headers['mcp-session-id'])}`)
      if (id === undefined) return void response.writeHead(202).end()
      const started = method === 'initialize' ? { 'mcp-session-id': `session-${++opened}` } : {}
      response.writeHead(200, { 'content-type': 'application/json', ...started })
      response.end(
        JSON.stringify({ jsonrpc: '2.0', id, ...(method === 'initialize' ? reply : { result: {} }) }),
      )
    })
  })
  const reopened: number[] = []
  const post = (text: string) => postAway(wire, text)
  const held: HttpSession = new HttpSession({
    wire,
    hello: capableHello,
    exchange: { clock: new ManualClock(), maxReply: 100_000, underWay: new Set(), post },
    channel: new TestChannel(),
    onReopened: () => reopened.push(held.epoch),
  })
  return { held, wire, got, reopened, signal: new AbortController().signal }
}

test('a handshake tells what the server said, and later requests name the session', async (t) => {
  const { held, wire, got, signal } = await session(t)
  await held.open(signal)
  assert.deepEqual(held.greeting.value, greeting)
  assert.equal(held.greeting.text, JSON.stringify(greeting))
  assert.equal(wire.sessionId, 'session-1')
  assert.deepEqual(got, ['initialize @undefined', 'notifications/initialized @session-1'])
})

test('a server that refuses, or says nothing of use, leaves no greeting', async (t) => {
  const refused = await session(t, { error: { code: -32600, message: 'not you' } })
  await assert.rejects(refused.held.open(refused.signal), {
    reason: 'upstream_refused',
    message: 'initialize failed: not you',
  })
  assert.deepEqual(refused.got, ['initialize @undefined'])
})

test('a lost session is opened once for all who lost it, and told what the old one knew', async (t) => {
  const { held, wire, got, reopened, signal } = await session(t)
  await held.open(signal)
  held.state.note(newCall({ method: 'resources/subscribe', params: { uri: 'file:///a' } }))
  held.lose()
  assert.equal(held.lost, true)
  got.length = 0
  await Promise.all([held.reopen(signal), held.reopen(signal), held.reopen(signal)])
  assert.equal(held.lost, false)
  assert.equal(wire.sessionId, 'session-2')
  assert.deepEqual(got, [
    'initialize @undefined',
    'notifications/initialized @session-2',
    'resources/subscribe @session-2',
  ])
  assert.deepEqual(reopened, [1])
})

test('who hears late of a loss does not lose the session that was opened since', async (t) => {
  const { held, got, signal } = await session(t)
  await held.open(signal)
  const { epoch } = held
  held.lose(epoch)
  await held.reopen(signal)
  held.lose(epoch)
  assert.equal(held.lost, false)
  got.length = 0
  await held.reopen(signal)
  assert.deepEqual(got, [])
})

test('a session that could not be opened again is still lost, and tried once more', async (t) => {
  const { held, reopened, signal } = await session(t)
  await held.open(signal)
  held.lose()
  const over = new AbortController()
  over.abort({ reason: 'cancelled', message: 'x', sent: false })
  await assert.rejects(held.reopen(over.signal), { reason: 'cancelled' })
  assert.equal(held.lost, true)
  await held.reopen(signal)
  assert.deepEqual(reopened, [1])
})
