import assert from 'node:assert/strict'
import { once } from 'node:events'
import { createServer, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { test, type TestContext } from 'node:test'
import { httpServer } from '../../src/config/schema/server-schema.ts'
import { type Clock, systemClock } from '../../src/mesh/clock.ts'
import { gatewayError, isGatewayError, type GatewayError } from '../../src/mesh/errors.ts'
import { ownInitializeParams } from '../../src/protocol/identity.ts'
import { createUpstreams } from '../../src/upstreams/create.ts'
import { UnfinishedReplies } from '../../src/upstreams/unfinished-replies.ts'
import type { Upstream } from '../../src/upstreams/upstream.ts'
import { TaskBinding } from '../../src/upstreams/shared/task-binding.ts'
import { TestCaller, toolCall } from '../support/caller.ts'
import { defaultLimits } from '../support/default-limits.ts'
import { recordedLog } from '../support/log.ts'
import { ManualClock } from '../support/manual-clock.ts'
import { type Came, discovered, json, type Play, rawHttp } from '../support/modern.ts'
import { ownAddress } from '../support/own-address.ts'
import { until } from '../support/until.ts'

const never = new AbortController().signal
const legacy = () => new TestCaller()
const modern = () => new TestCaller({ era: 'modern' })

const welcome = { capabilities: {}, serverInfo: { name: 'old', version: '1' } }

/** Creates the upstream of a config entry. */
function upstreamOf(t: TestContext, entry: Record<string, unknown>, clock: Clock = systemClock) {
  const { log, lines } = recordedLog()
  const [upstream = assert.fail()] = createUpstreams('shop', httpServer.parse(entry), {
    clock,
    log,
    initializeParams: ownInitializeParams,
    replies: new UnfinishedReplies(defaultLimits.replies, () => undefined),
    tasks: new TaskBinding(clock),
  })
  t.after(() => upstream.close())
  return { upstream, lines }
}

/** Plays an HTTP+SSE server: refuses posts to the URL of its stream, and takes posts at the endpoint it names. */
function speaksSse(refuse: (came: Came, response: ServerResponse) => void): Play {
  let stream: ServerResponse | undefined
  return (came, response) => {
    if (came.method === 'GET') {
      stream = response.writeHead(200, { 'content-type': 'text/event-stream' })
      return void stream.write('event: endpoint\ndata: /messages?session=1\n\n')
    }
    if (came.headers['x-at'] === 'stream') return refuse(came, response)
    const { id, method } = came.body
    response.writeHead(202).end()
    if (id === undefined) return
    const result = method === 'initialize' ? { protocolVersion: '2024-11-05', ...welcome } : { content: [] }
    stream?.write(`data: ${JSON.stringify({ jsonrpc: '2.0', id, result })}\n\n`)
  }
}

const withStatus =
  (status: number) =>
  (_: Came, response: ServerResponse): void =>
    void response.writeHead(status).end('no')

/** A server with its stream at /mcp; a header shows the path of each post. */
async function sseServer(t: TestContext, refuse = withStatus(405)) {
  const play = speaksSse(refuse)
  return serve(t, play)
}

async function serve(t: TestContext, play: Play, port = 0) {
  const came: Came[] = []
  const server = createServer((request, response) => {
    let text = ''
    request.on('data', (chunk: Buffer) => (text += chunk.toString()))
    request.on('end', () => {
      const body = (text === '' ? {} : JSON.parse(text)) as Came['body']
      const at = request.url === '/mcp' ? 'stream' : 'endpoint'
      const one = { method: request.method, headers: { ...request.headers, 'x-at': at }, text, body }
      came.push(one)
      play(one, response)
    })
  })
  server.listen(port, ownAddress)
  await once(server, 'listening')
  const stop = () => {
    server.closeAllConnections()
    server.close()
  }
  t.after(stop)
  return { url: `http://${ownAddress}:${(server.address() as AddressInfo).port}/mcp`, came, stop }
}

/** Plays a legacy server of Streamable HTTP. */
const streamable: Play = (came, response) => {
  if (came.method !== 'POST') return void response.writeHead(405).end()
  if (came.body.id === undefined) return void response.writeHead(202).end()
  const { id, method } = came.body
  const results: Record<string, object> = { initialize: { protocolVersion: '2025-11-25', ...welcome } }
  const result = results[method ?? '']
  if (result === undefined)
    return json(response, { jsonrpc: '2.0', id, error: { code: -32601, message: 'no' } })
  json(response, { jsonrpc: '2.0', id, result })
}

async function refusalOf(upstream: Upstream): Promise<GatewayError> {
  const error: unknown = await upstream.open(legacy(), never).then(
    () => assert.fail('opened'),
    (cause: unknown) => cause,
  )
  assert.ok(isGatewayError(error))
  return error
}

const found = (upstream: Upstream) => upstream.transport?.()?.transport
const gets = (came: readonly Came[]) => came.filter(({ method }) => method === 'GET').length

for (const status of [400, 404, 405]) {
  test(`a URL where ${status} answers initialize, and a stream names its endpoint, is spoken to over HTTP+SSE`, async (t) => {
    const { url, came } = await sseServer(t, withStatus(status))
    const { upstream, lines } = upstreamOf(t, { url })
    assert.equal(found(upstream), undefined)
    const session = await upstream.open(legacy(), never)
    assert.equal(session.initializeResult.value.protocolVersion, '2024-11-05')
    assert.equal((await session.exchange(toolCall('x'))).kind, 'answered')
    assert.equal(came[0]?.body.method, 'initialize')
    assert.equal(found(upstream), 'sse')
    assert.deepEqual([upstream.eras?.().legacy?.speaks, upstream.eras?.().modern?.speaks], [true, false])
    const posted = () =>
      came.filter(({ headers }) => headers['x-at'] === 'stream' && headers['content-type']).length
    const before = posted()
    await upstream.open(modern(), never)
    assert.equal(posted(), before, 'the transport is not detected again')
    const told = lines.filter(({ transport }) => transport === 'sse')
    assert.deepEqual(
      told.map(({ server, level }) => [server, level]),
      [['shop', 30]],
    )
  })
}

test('a URL that speaks Streamable HTTP is never asked for a stream of the older transport', async (t) => {
  const { url, came } = await rawHttp(t, streamable)
  const { upstream } = upstreamOf(t, { url })
  await upstream.open(legacy(), never)
  assert.equal(found(upstream), 'streamable-http')
  assert.equal(gets(came), 0)
})

test('the era of a URL without a type is found out as before', async (t) => {
  const { url } = await rawHttp(t, (came, response) => {
    if (came.body.method === 'server/discover')
      return json(response, { jsonrpc: '2.0', id: came.body.id, result: discovered })
    streamable(came, response)
  })
  const { upstream } = upstreamOf(t, { url })
  const session = await upstream.open(modern(), never)
  assert.equal(session.initializeResult.value.protocolVersion, '2026-07-28')
  assert.equal(upstream.eras?.().modern?.speaks, true)
  assert.equal(found(upstream), 'streamable-http')
})

for (const status of [401, 403, 429, 500, 503]) {
  test(`a server that answers ${status} is not taken for one of HTTP+SSE`, async (t) => {
    const { url, came } = await sseServer(t, withStatus(status))
    const { upstream } = upstreamOf(t, { url })
    assert.match((await refusalOf(upstream)).message, new RegExp(String(status)))
    assert.equal(gets(came), 0)
    assert.equal(found(upstream), undefined)
  })
}

test('a server that is down stays down with its own error, and is found out when it comes up', async (t) => {
  const first = await sseServer(t)
  first.stop()
  const { upstream, lines } = upstreamOf(t, { url: first.url })
  assert.equal((await refusalOf(upstream)).reason, 'upstream_unavailable')
  assert.equal(found(upstream), undefined)
  await serve(t, speaksSse(withStatus(405)), Number(new URL(first.url).port))
  await upstream.open(legacy(), never)
  assert.equal(found(upstream), 'sse')
  assert.equal(lines.filter(({ transport }) => transport !== undefined).length, 1)
})

test('a server that refuses both says why in its own words', async (t) => {
  const { url, came } = await rawHttp(t, withStatus(404))
  const { upstream } = upstreamOf(t, { url })
  const { message } = await refusalOf(upstream)
  assert.equal(message, 'the server refused the request (HTTP 404: "no")')
  assert.equal(gets(came), 1)
  assert.equal(found(upstream), undefined)
})

test('a stream that does not begin with an endpoint is not waited for', async (t) => {
  const clock = new ManualClock()
  const { url, came } = await rawHttp(t, (one, response) => {
    if (one.method !== 'GET') return void response.writeHead(400).end()
    response.writeHead(200, { 'content-type': 'text/event-stream' }).write('data: {}\n\n')
  })
  const { upstream } = upstreamOf(t, { url, era: 'legacy' }, clock)
  const refused = refusalOf(upstream)
  await until('the server is asked for its stream', () => gets(came) === 1)
  await clock.advance(3_000)
  assert.equal((await refused).message, 'the server refused the request (HTTP 400)')
  assert.equal(found(upstream), undefined)
})

test('an entry with type http at an HTTP+SSE address gets an error with the right type', async (t) => {
  const { url } = await sseServer(t)
  const { upstream } = upstreamOf(t, { type: 'http', url })
  assert.equal(
    (await refusalOf(upstream)).message,
    'the server refused the request (HTTP 405: "no"); the server speaks HTTP+SSE: write "type: sse" in its entry, or leave "type" out',
  )
  assert.equal(found(upstream), undefined)
})

test('a server that moves on to Streamable HTTP is found out', async (t) => {
  let play = speaksSse(withStatus(405))
  const { url } = await serve(t, (came, response) => play(came, response))
  const { upstream } = upstreamOf(t, { url })
  const session = await upstream.open(legacy(), never)
  assert.equal(found(upstream), 'sse')
  await session.close()
  play = streamable
  await upstream.open(legacy(), never)
  assert.equal(found(upstream), 'streamable-http')
})

test("the HTTP+SSE endpoint's answer to the handshake is passed on unchanged", async (t) => {
  const { url } = await serve(t, (came, response) => {
    if (came.method === 'GET')
      return void response
        .writeHead(200, { 'content-type': 'text/event-stream' })
        .write('event: endpoint\ndata: /messages\n\n')
    response.writeHead(came.headers['x-at'] === 'stream' ? 405 : 401).end()
  })
  const { upstream } = upstreamOf(t, { url })
  assert.equal((await refusalOf(upstream)).reason, 'upstream_unauthorized')
})

for (const how of ['is silent', 'ends'] as const)
  test(`a server of Streamable HTTP in the place of one of HTTP+SSE is found, though the stream that it opens ${how}`, async (t) => {
    const { url, stop } = await sseServer(t)
    const { upstream } = upstreamOf(t, { url })
    const session = await upstream.open(legacy(), never)
    assert.equal(found(upstream), 'sse')
    stop()
    await until('the stream of the server is gone', () => session.ended.aborted)
    const opens: Play = (came, response) => {
      if (came.method !== 'GET') return streamable(came, response)
      response.writeHead(200, { 'content-type': 'text/event-stream' }).flushHeaders()
      if (how === 'ends') response.end()
    }
    const { came } = await serve(t, opens, Number(new URL(url).port))
    const patience = new AbortController()
    const opening = upstream.open(legacy(), patience.signal)
    const failed = assert.rejects(opening)
    await until('a GET has come', () => gets(came) > 0)
    if (how === 'is silent') patience.abort(gatewayError('attempt_timeout', 'no answer in time'))
    await failed
    await upstream.open(legacy(), never)
    assert.equal(found(upstream), 'streamable-http')
  })
