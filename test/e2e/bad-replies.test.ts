import assert from 'node:assert/strict'
import type { ServerResponse } from 'node:http'
import { after, before, test } from 'node:test'
import { until } from '../support/until.ts'
import { cleanUp, Gateway, type Json } from './support/gateway.ts'
import { RawClient } from './support/raw-client.ts'
import { closeServers, RawServer, sendJson } from './support/raw-server.ts'
import { stdioToolbox } from './support/toolbox.ts'

const HUGE_BYTES = 100 * 1024 ** 2
const CHUNK = Buffer.alloc(1024 ** 2, 'x')

/** Writes as much as the other side takes, up to 100 MB. */
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

/** What a server does instead of answering, and the error that the agent gets. */
const misdeeds: Readonly<Record<string, readonly [string, (response: ServerResponse) => unknown]>> = {
  HTML: ['BW_BAD_REPLY', (response) => response.end('<html>hello</html>')],
  'the answer to another request': [
    'BW_BAD_REPLY',
    (response) => sendJson(response, '{"jsonrpc":"2.0","id":"another","result":{}}'),
  ],
  'JSON that breaks off': ['BW_BAD_REPLY', (response) => sendJson(response, '{"jsonrpc":"2.0","id":')],
  'JSON that is no JSON-RPC': ['BW_BAD_REPLY', (response) => sendJson(response, '{"content":[]}')],
  'an empty reply': ['BW_BAD_REPLY', (response) => response.writeHead(200, json).end()],
  'HTTP 202': ['BW_BAD_REPLY', (response) => response.writeHead(202).end()],
  'a redirect': ['BW_UPSTREAM_REFUSED', (response) => response.writeHead(302, { location: '/' }).end()],
  'HTTP 401': ['BW_UPSTREAM_UNAUTHORIZED', (response) => response.writeHead(401).end()],
  'HTTP 500': ['BW_UPSTREAM_STATUS', (response) => response.writeHead(500).end('<h1>oops</h1>')],
  'a connection that breaks at once': ['BW_UPSTREAM_DISCONNECTED', (response) => response.destroy()],
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
  'a reply of 100 MB': ['BW_REPLY_TOO_LARGE', (response) => flood(response.writeHead(200, json))],
  'an event of 100 MB': [
    'BW_REPLY_TOO_LARGE',
    (response) => {
      response.writeHead(200, events).write('data: ')
      flood(response)
    },
  ],
}

let gateway: Gateway
let bad: RawServer
let client: RawClient

before(async () => {
  bad = await RawServer.start(({ message }, response) => {
    if (message.method !== 'tools/call') return false
    const { name } = message.params as { name: string }
    if (name === 'later') response.writeHead(429, { 'retry-after': '7' }).end()
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

test('a server that limits our rate says when to come again', async () => {
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

test('a server that stays silent gives a timeout, and is told that nobody waits any more', async () => {
  const { code } = await dataOf('bad__silence')
  assert.equal(code, 'BW_ATTEMPT_TIMEOUT')
  const call = bad.of('tools/call').find(({ text }) => text.includes('silence'))
  const isTold = ({ message }: { message: Json }) => (message.params as Json).requestId === call?.message.id
  await until('the server is told', () => bad.of('notifications/cancelled').some(isTold))
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
