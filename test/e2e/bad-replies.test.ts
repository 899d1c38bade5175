import assert from 'node:assert/strict'
import type { ServerResponse } from 'node:http'
import { after, before, test } from 'node:test'
import { brotliCompressSync, constants, createGzip, deflateRawSync, deflateSync, gzipSync } from 'node:zlib'
import { until } from '../support/until.ts'
import { cleanUp, Gateway, type Json } from './support/gateway.ts'
import { RawClient } from './support/raw-client.ts'
import { closeServers, RawServer, type Seen, sendJson } from './support/raw-server.ts'
import { stdioToolbox } from './support/toolbox.ts'

const HUGE_BYTES = 100 * 1024 ** 2
const CHUNK = Buffer.alloc(1024 ** 2, 'x')

/** Writes as much as the peer takes, up to 100 MB. */
function flood(response: ServerResponse): void {
  let written = 0
  const more = () => {
    while (written < HUGE_BYTES && !response.destroyed) {
      written += CHUNK.length
      if (!response.write(CHUNK)) return void response.once('drain', more)
    }
    response.end()
  }
  more()
}

const json = { 'content-type': 'application/json' }
const events = { 'content-type': 'text/event-stream' }

/** Misbehaviour of a server, and the error the agent gets; see e2e/hostile-peers for more. */
const misdeeds: Readonly<Record<string, readonly [string, (response: ServerResponse) => unknown]>> = {
  'JSON that is no JSON-RPC': ['BW_BAD_REPLY', (response) => sendJson(response, '{"content":[]}')],
  'an empty reply': ['BW_BAD_REPLY', (response) => response.writeHead(200, json).end()],
  'HTTP 202': ['BW_BAD_REPLY', (response) => response.writeHead(202).end()],
  'a redirect': ['BW_UPSTREAM_REFUSED', (response) => response.writeHead(302, { location: '/' }).end()],
  'a reply that breaks off': [
    'BW_UPSTREAM_DISCONNECTED',
    (response) => response.writeHead(200, json).write('{"json', () => response.destroy()),
  ],
  'a stream without an answer': [
    'BW_UPSTREAM_DISCONNECTED',
    (response) => response.writeHead(200, events).end(),
  ],
  'an event that is no JSON': [
    'BW_BAD_REPLY',
    (response) => response.writeHead(200, events).end('data: what?\n\n'),
  ],
  'an event that is no message, and nothing behind it': [
    'BW_BAD_REPLY',
    (response) => response.writeHead(200, events).end('data: {"content":[]}\n\n'),
  ],
  'an event with a result of nobody, in a stream that stays open': [
    'BW_BAD_REPLY',
    (response) => response.writeHead(200, events).write('data: {"jsonrpc":"2.0","result":null}\n\n'),
  ],
  'a reply of 100 MB': ['BW_REPLY_TOO_LARGE', (response) => flood(response.writeHead(200, json))],
  'an event of 100 MB': [
    'BW_REPLY_TOO_LARGE',
    (response) => {
      response.writeHead(200, events).write('data: ')
      flood(response)
    },
  ],
}

/** Sends an invalid message, and then the answer. Some servers ping with a null id. */
function chatter(response: ServerResponse, id: unknown): void {
  const ping = { jsonrpc: '2.0', id: null, method: 'ping' }
  const anotherId = { jsonrpc: '2.0', id: 'another', result: null }
  const said = [ping, { jsonrpc: '2.0', method: 'a/b', params: [] }, anotherId, [ping], 7, null]
  const answer = { jsonrpc: '2.0', id, result: { content: [{ type: 'text', text: 'done' }] } }
  response.writeHead(200, events)
  response.end([...said, answer].map((event) => `data: ${JSON.stringify(event)}\n\n`).join(''))
}

let gateway: Gateway
let bad: RawServer
let client: RawClient

before(async () => {
  bad = await RawServer.start(({ message }, response) => {
    if (message.method !== 'tools/call') return false
    const { name } = message.params as { name: string }
    if (name === 'later') response.writeHead(429, { 'retry-after': '7' }).end()
    else if (name === 'chatter') chatter(response, message.id)
    else misdeeds[name]?.[1](response)
    return true
  }, Object.keys(misdeeds))
  gateway = await Gateway.start({
    servers: { bad: { url: bad.url }, local: stdioToolbox({ maxReply: '1MiB' }) },
    policies: {
      overrides: [
        { match: { tool: 'silence' }, attemptTimeout: { timeout: 300 } },
        { match: { tool: 'later' }, retry: false },
      ],
    },
  })
  await gateway.waitFor('up', 'bad', 'local')
  client = await RawClient.open(gateway.mcp())
})
after(async () => {
  await cleanUp()
  closeServers()
})

async function dataOf(tool: string, args: Json = {}): Promise<Json> {
  const { error } = (await client.call(tool, args)) as { error?: { code: number; data: Json } }
  assert.ok(error, `${tool} did not fail`)
  assert.ok(error.code > -32_000, `the protocol reserves the code ${error.code}`)
  return error.data
}

for (const [misdeed, [code]] of Object.entries(misdeeds)) {
  test(`${misdeed} in place of an answer gives ${code}, and harms nobody else`, async () => {
    const failing = dataOf(`bad__${misdeed}`)
    assert.equal(await client.say('local__echo', { text: 'fine' }), 'fine')
    const data = await failing
    assert.equal(data.code, code)
    assert.deepEqual(
      { server: data.server, tool: data.tool, attempts: data.attempts, sent: data.sent },
      { server: 'bad', tool: misdeed, attempts: 1, sent: true },
    )
    assert.equal(typeof data.retryable, 'boolean')
  })
}

test('events without a message or an answer do not harm a call, and the log mentions them', async () => {
  assert.equal(await client.say('bad__chatter'), 'done')
  assert.equal(bad.of('tools/call').filter(({ text }) => text.includes('chatter')).length, 1)
  await until('the log tells', () =>
    gateway.log.some(({ msg }) => msg === 'skipped output that is not JSON-RPC'),
  )
})

test('the error of a rate-limited call says when to retry', async () => {
  assert.deepEqual(await dataOf('bad__later'), {
    code: 'BW_UPSTREAM_RATE_LIMITED',
    reason: 'upstream_rate_limited',
    server: 'bad',
    tool: 'later',
    retryable: true,
    retryAfterMs: 7_000,
    attempts: 1,
    sent: true,
  })
})

test('a call to a silent server times out, and the server gets a cancellation', async () => {
  const { code } = await dataOf('bad__silence')
  assert.equal(code, 'BW_ATTEMPT_TIMEOUT')
  const call = bad.of('tools/call').find(({ text }) => text.includes('silence'))
  const isTold = ({ message }: { message: Json }) => (message.params as Json).requestId === call?.message.id
  await until('the server is told', () => bad.of('notifications/cancelled').some(isTold))
})

/** Starts a gateway before one server; returns a client. */
async function clientOf(url: string, more: Json = {}): Promise<RawClient> {
  const own = await Gateway.start({
    servers: { one: { url, ...more } },
    policies: { defaults: { retry: false } },
  })
  await own.waitFor('up', 'one')
  return RawClient.open(own.mcp('one'))
}

const answerOf = ({ message }: Seen, text: string) =>
  JSON.stringify({ jsonrpc: '2.0', id: message.id, result: { content: [{ type: 'text', text }] } })

test('a redirect within the origin is followed with the same request, a few times', async () => {
  const server = await RawServer.start(
    (seen, response) => {
      const { url, message } = seen
      const name = (message.params as Json | undefined)?.name
      if (name === 'loop') return void response.writeHead(308, { location: `${url}x` }).end('moved')
      if (url === '/mcp') return void response.writeHead(307, { location: '/mcp/?to=here' }).end('moved')
      if (name !== 'echo') return false
      sendJson(response, answerOf(seen, seen.text))
      return true
    },
    ['echo', 'loop'],
  )
  const client = await clientOf(server.url)
  const sent = { jsonrpc: '2.0', id: 'a', method: 'tools/call', params: { name: 'echo', arguments: {} } }
  const { messages } = await client.post(sent)
  assert.deepEqual(messages[0]?.result, { content: [{ type: 'text', text: JSON.stringify(sent) }] })
  assert.deepEqual(
    server.of('tools/call').map(({ verb, url, text }) => [verb, url, text]),
    ['/mcp', '/mcp/?to=here'].map((url) => ['POST', url, JSON.stringify(sent)]),
  )
  const { error } = (await client.call('loop')) as { error: { message: string; data: Json } }
  assert.equal(error.data.code, 'BW_UPSTREAM_REFUSED')
  assert.equal(server.of('tools/call').length, 2 + 6)
})

test('a redirect to another origin is not followed, and the error names its address without what may be secret', async () => {
  const other = await RawServer.start(() => false)
  const server = await RawServer.start(
    ({ message }, response) => {
      if (message.method !== 'tools/call') return false
      response.writeHead(307, { location: `${other.url}/moved?token=secret` }).end()
      return true
    },
    ['echo'],
  )
  const client = await clientOf(server.url, { headers: { 'x-key': 'of-the-operator' } })
  const { error } = (await client.call('echo')) as { error: { message: string; data: Json } }
  assert.equal(error.data.code, 'BW_UPSTREAM_REFUSED')
  assert.ok(
    error.message.includes(`redirects (HTTP 307) to ${other.url}/moved: write that address`),
    error.message,
  )
  assert.equal(other.seen.length, 0)
})

const codings: Readonly<Record<string, readonly [string, (text: string | Buffer) => Buffer]>> = {
  gzip: ['gzip', gzipSync],
  zlib: ['deflate', deflateSync],
  raw: ['Deflate', deflateRawSync],
  brotli: ['br', (text) => brotliCompressSync(text, { params: { [constants.BROTLI_PARAM_QUALITY]: 1 } })],
}

test('the gateway reads compressed replies, as JSON and as events, up to the usual size limit', async () => {
  const tools = Object.keys(codings).flatMap((name) => [`${name}_json`, `${name}_events`, `${name}_bomb`])
  const server = await RawServer.start((seen, response) => {
    const { name } = (seen.message.params ?? {}) as { name?: string }
    const [coding = '', form = ''] = name?.split('_') ?? []
    const found = codings[coding]
    if (seen.message.method !== 'tools/call' || found === undefined) return false
    const [header, compress] = found
    const type = form === 'events' ? 'text/event-stream' : 'application/json'
    response.writeHead(200, { 'content-type': type, 'content-encoding': header })
    const answer = answerOf(seen, name === undefined ? '' : name.repeat(10_000))
    const body =
      form === 'bomb' ? Buffer.alloc(HUGE_BYTES, ' ') : form === 'events' ? `data: ${answer}\n\n` : answer
    const bytes = compress(body)
    response.write(bytes.subarray(0, 100))
    response.end(bytes.subarray(100))
    return true
  }, tools)
  const client = await clientOf(server.url, { maxReply: '1MiB' })
  for (const coding of Object.keys(codings)) {
    for (const form of ['json', 'events']) {
      const name = `${coding}_${form}`
      assert.equal(await client.say(name), name.repeat(10_000))
    }
    const { error } = (await client.call(`${coding}_bomb`)) as { error: { data: Json } }
    assert.equal(error.data.code, 'BW_REPLY_TOO_LARGE')
  }
})

test('compressed events arrive as soon as the server sends them, and a reply with a false encoding fails', async () => {
  let finish = () => {}
  const server = await RawServer.start(
    (seen, response) => {
      if (seen.message.method !== 'tools/call') return false
      const isBroken = seen.text.includes('broken')
      const type = isBroken ? 'application/json' : 'text/event-stream'
      response.writeHead(200, { 'content-type': type, 'content-encoding': 'gzip' })
      if (isBroken) return void response.end(answerOf(seen, 'not compressed'))
      const packed = createGzip()
      packed.pipe(response)
      const params = { level: 'info', data: 'first' }
      packed.write(`data: ${JSON.stringify({ jsonrpc: '2.0', method: 'notifications/message', params })}\n\n`)
      packed.flush(constants.Z_SYNC_FLUSH)
      finish = () => void packed.end(`data: ${answerOf(seen, 'done')}\n\n`)
      return true
    },
    ['slow', 'broken'],
  )
  const client = await clientOf(server.url)
  const call = { jsonrpc: '2.0', id: 'a', method: 'tools/call', params: { name: 'slow', arguments: {} } }
  const stream = await client.stream(call)
  await stream.next('the first event', ({ params }) => (params as Json)?.data === 'first')
  finish()
  const { result } = await stream.next('the answer', ({ id }) => id === 'a')
  assert.deepEqual(result, { content: [{ type: 'text', text: 'done' }] })
  const { error } = (await client.call('broken')) as { error: { data: Json } }
  assert.equal(error.data.code, 'BW_BAD_REPLY')
})

test('a stdio server may write noise and a line of 100 MB, and goes on', async () => {
  assert.equal(await client.say('local__noise', { text: 'no JSON' }), 'made noise')
  const strays = ['{"jsonrpc":"2.0","id":4711,"result":{}}', '[]', '7', '{}', '']
  for (const text of strays) assert.equal(await client.say('local__noise', { text }), 'made noise')
  assert.equal(await client.say('local__binary'), 'made noise')
  const pid = await client.say('local__pid')
  const { code, sent } = await dataOf('local__huge', { bytes: HUGE_BYTES })
  assert.deepEqual({ code, sent }, { code: 'BW_REPLY_TOO_LARGE', sent: true })
  assert.equal(await client.say('local__pid'), pid)
})
