import assert from 'node:assert/strict'
import { once } from 'node:events'
import { request } from 'node:http'
import { after, before, test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { until } from '../support/until.ts'
import { postDeaf } from './support/deaf-client.ts'
import { cleanUp, Gateway, type Json } from './support/gateway.ts'
import { headersOf, metaOf } from './support/modern-client.ts'
import { post, RawClient } from './support/raw-client.ts'
import { RawSocket } from './support/raw-socket.ts'
import { stdioToolbox } from './support/toolbox.ts'

const KIB = 1024
const MIB = 1024 ** 2

/** How long an answer may take that is made at once; what is never answered takes for ever. In milliseconds. */
const ANSWER_MS = 10_000

/** Whoever names a version may send more than an initialize request. */
const version = { 'mcp-protocol-version': '2025-11-25' }

const probe = fileURLToPath(new URL('../fixtures/heap-probe.js', import.meta.url))

let gateway: Gateway
let bystander: RawClient

before(async () => {
  gateway = await Gateway.start(
    {
      gateway: {
        maxBody: '4MiB',
        limits: { connections: 800, memory: '320MiB', stalled: '15s' },
      },
      servers: { local: stdioToolbox() },
    },
    {
      nodeArgs: ['--max-old-space-size=512', '--expose-gc', '--import', probe],
      stdio: ['ignore', 'pipe', 'pipe', 'ipc'],
    },
  )
  await gateway.waitFor('up', 'local')
  bystander = await RawClient.open(gateway.mcp())
})
after(async () => {
  await isServed()
  // Nothing was taken for a defect of the gateway.
  assert.deepEqual(
    gateway.log.filter(({ level }) => level === 50),
    [],
  )
  await cleanUp()
})

/** Somebody else is served, and nothing is left of what was refused. */
async function isServed(): Promise<void> {
  assert.equal(await bystander.say('local__echo', { text: 'served' }), 'served')
  await gateway.waitForCalls(0)
}

/** What the gateway holds once all garbage is collected, in bytes. */
async function held(): Promise<number> {
  const { child } = gateway.program
  child.send('measure')
  const [bytes] = (await once(child, 'message')) as [Record<'heapUsed' | 'external' | 'arrayBuffers', number>]
  return bytes.heapUsed + Math.max(bytes.external, bytes.arrayBuffers)
}

/** An answer, however it came; rejects when there is none in time. */
async function answerTo(url: string, body: string, headers: Readonly<Record<string, string>>): Promise<Json> {
  const none = new Promise<never>((_, reject) => {
    AbortSignal.timeout(ANSWER_MS).addEventListener('abort', () =>
      reject(new Error(`no answer to ${body.slice(0, 200)}`)),
    )
  })
  const { messages, text, status } = await Promise.race([post(url, body, headers), none])
  const [message] = messages
  if (message === undefined) throw new Error(`HTTP ${status} ${text}`)
  return message
}

const deep = (levels: number, open = '{"a":', close = '}') => `${open.repeat(levels)}1${close.repeat(levels)}`

/** What stands where a word should. */
const strange = ['{"toString":1}', '{"toString":1,"valueOf":2}', '[["a"]]', '{"length":9}', 'true']

/** Parameters of a request, as JSON text, that ask for trouble; and the code of the error that they get. */
const troubles: readonly (readonly [method: string, params: string, code: number])[] = [
  ...strange.flatMap((value) =>
    (
      [
        ['tools/call', `"name":${value}`],
        ['tools/call', `"name":"local__echo","_meta":{"progressToken":${value}}`],
        ['prompts/get', `"name":${value}`],
        ['resources/read', `"uri":${value}`],
        ['tasks/get', `"taskId":${value}`],
        ['tools/list', `"cursor":${value}`],
      ] as const
    ).map(([method, params]) => [method, params, -32602] as const),
  ),
  ['tools/call', `"name":"local__echo","arguments":${deep(100_000)}`, -32600],
  ['tools/call', `"name":${deep(100_000, '[', ']')}`, -32600],
  ['tools/list', `"cursor":${deep(100_000)}`, -32600],
  ['tools/call', '"name":"local__echo","Name":"local__sleep"', -32600],
  ['tools/call', '"name":"local__echo","name":"local__sleep"', -32600],
  ['tools/call', '"name":"local__echo","nam\\u0065":"local__sleep"', -32600],
  ['tools/call', '"name":"local__echo","arguments":{"text":"a","text":"b"}', -32600],
]

test('no request of a session goes without an answer, whatever stands where a word should', async () => {
  for (const server of [undefined, 'local']) {
    const client = await RawClient.open(gateway.mcp(server))
    for (const [method, params, code] of troubles) {
      const body = `{"jsonrpc":"2.0","id":"x","method":"${method}","params":{${params}}}`
      const { id, error } = await answerTo(client.url, body, client.headers)
      assert.equal((error as Json).code, code, body.slice(0, 200))
      if (code === -32602) assert.equal(id, 'x')
    }
    await client.leave()
  }
  await isServed()
})

test('no request without a session goes without an answer either', async () => {
  const meta = JSON.stringify(metaOf()).slice(1, -1)
  for (const server of [undefined, 'local']) {
    for (const [method, params, code] of troubles) {
      const whole = params.includes('"_meta":{')
        ? params.replace('"_meta":{', `"_meta":{${meta},`)
        : `${params},"_meta":{${meta}}`
      const body = `{"jsonrpc":"2.0","id":"x","method":"${method}","params":{${whole}}}`
      const named = { name: /"name":"([^"]*)"/.exec(params)?.[1] }
      const headers = headersOf({ method, params: named.name === undefined ? {} : named })
      const { error } = await answerTo(gateway.mcp(server), body, headers)
      assert.equal((error as Json).code, code, body.slice(0, 300))
    }
  }
  await isServed()
})

test('what clients say of themselves is bounded in depth and size, and the list of sessions shows it', async () => {
  const initializeRequest = (info: string, capabilities = '{}') =>
    `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":${capabilities},"clientInfo":${info}}}`
  for (const body of [initializeRequest(deep(100_000)), initializeRequest('{"name":"x"}', deep(100_000))])
    assert.equal(((await answerTo(gateway.mcp(), body, {})).error as Json).code, -32600)
  const { error } = await answerTo(
    gateway.mcp(),
    initializeRequest(`{"name":"x","x":"${'x'.repeat(17 * KIB)}"}`),
    {},
  )
  assert.match(String((error as Json).message), /at most 16384/)
  const many = { experimental: { a: Array.from({ length: 300 }, () => ({})) } }
  const crowded = await answerTo(gateway.mcp(), initializeRequest('{"name":"x"}', JSON.stringify(many)), {})
  assert.match(String((crowded.error as Json).message), /at most 256/)
  const crowd = { ...metaOf(), 'io.modelcontextprotocol/clientCapabilities': many }
  const asked = { jsonrpc: '2.0', id: 1, method: 'tools/list', params: { _meta: crowd } }
  const turnedDown = await answerTo(gateway.mcp(), JSON.stringify(asked), headersOf(asked))
  assert.match(String((turnedDown.error as Json).message), /clientCapabilities .*at most 256/)
  const large = { ...metaOf(), 'io.modelcontextprotocol/clientInfo': { name: 'x'.repeat(17 * KIB) } }
  const request = { jsonrpc: '2.0', id: 1, method: 'tools/list', params: { _meta: large } }
  const refused = await answerTo(gateway.mcp(), JSON.stringify(request), headersOf(request))
  assert.match(String((refused.error as Json).message), /clientInfo .*at most 16384/)
  const odd = await post(gateway.mcp(), initializeRequest(`{"name":"odd","version":["1"],"x":${deep(100)}}`))
  const session = { 'mcp-session-id': odd.headers.get('mcp-session-id') ?? '' }
  const { status, body } = await gateway.admin<{ sessions: { client: Json }[] }>('/admin/sessions')
  assert.equal(status, 200)
  assert.deepEqual(body.sessions.at(-1)?.client, { name: 'odd' })
  await fetch(gateway.mcp(), { method: 'DELETE', headers: session })
})

test('120 clients that say much of themselves, or beside it, leave nothing behind', async (t) => {
  const filler = 'x'.repeat(63 * KIB)
  const beforehand = await held()
  const kept: string[] = []

  for (let n = 0; n < 60; n++) {
    const params = { protocolVersion: '2025-11-25', capabilities: {}, clientInfo: { name: 'big', x: filler } }
    const large = { jsonrpc: '2.0', id: 1, method: 'initialize', params }
    const huge = JSON.stringify({ ...large, beside: 'x'.repeat(4 * MIB - 1_000 * KIB) })
    // Most clients name no version before they have agreed on one.
    const socket = await RawSocket.open(gateway.mcp(), { 'content-length': String(huge.length) })
    await socket.begin(huge)
    await until('it is refused', () => socket.text.startsWith('HTTP/1.1 413 '))
    socket.close()
    for (const body of [JSON.stringify(large), huge])
      assert.match(JSON.stringify(await answerTo(gateway.mcp(), body, version)), /at most 16384/)
    const info = { name: `a name that is longer than some ${n}`, version: '1' }
    const beside = { ...large, params: { ...params, clientInfo: info }, beside: filler }
    const { headers } = await post(gateway.mcp(), JSON.stringify(beside))
    kept.push(headers.get('mcp-session-id') ?? '')
  }
  const more = (await held()) - beforehand
  t.diagnostic(`${Math.round(more / KIB)} KiB more with ${kept.length} sessions`)
  assert.ok(more < 20 * MIB, `${Math.round(more / MIB)} MiB more`)
  for (const id of kept) await fetch(gateway.mcp(), { method: 'DELETE', headers: { 'mcp-session-id': id } })
  await isServed()
})

test('a POST without a body is answered, and so is what comes behind it', async () => {
  for (const path of [gateway.mcp(), gateway.mcp('local')])
    for (const headers of [{}, { 'content-length': '0' }, version, bystander.headers]) {
      const { pathname, port } = new URL(path)
      const lines = Object.entries(headers).map(([name, value]) => `${name}: ${value}\r\n`)
      const text = `POST ${pathname} HTTP/1.1\r\nhost: 127.0.0.1:${port}\r\n${lines.join('')}\r\n`
      const socket = await RawSocket.open(path)
      await socket.write(`${text}GET /livez HTTP/1.1\r\nhost: 127.0.0.1:${port}\r\n\r\n`)
      await until('both are answered', () => socket.text.split('HTTP/1.1 ').length === 3)
      assert.match(socket.text, /^HTTP\/1\.1 400 [^]*no body[^]*HTTP\/1\.1 200 /)
      socket.close()
    }
  await isServed()
})

test('a HEAD takes no stream from the client that listens', async () => {
  const client = await RawClient.open(gateway.mcp())
  const listening = await fetch(client.url, { headers: { ...client.headers, accept: 'text/event-stream' } })
  const headers = { ...client.headers, accept: 'text/event-stream' }
  assert.equal((await fetch(client.url, { method: 'HEAD', headers })).status, 404)
  assert.equal(await client.say('local__echo', { text: 'on the same connection' }), 'on the same connection')
  const reader = listening.body?.getReader()
  const still = new Promise((resolve) => setImmediate(() => resolve('open')))
  const first = reader?.read().then(({ done }) => (done ? 'over' : still))
  assert.equal(await Promise.race([first, still]), 'open')
  await reader?.cancel()
  await client.leave()
})

test('calls of 4 MB that wait for their server are bounded in bytes, and the gateway outlives them', async () => {
  const client = await RawClient.open(gateway.mcp('local'))
  const filler = 'x'.repeat(4 * MIB - 1_000)
  const statuses: number[] = []
  // They wait for as long as the last of them needs to be sent, and more.
  const calls = Array.from({ length: 60 }, async (_, n) => {
    const params = { name: 'sleep', arguments: { ms: 60_000, filler } }
    const reply = client.post({ jsonrpc: '2.0', id: `large-${n}`, method: 'tools/call', params })
    statuses.push(
      await reply.then(
        ({ status }) => status,
        () => 0,
      ),
    )
  })
  await until('all are refused for which there is no room', () => statuses.length >= calls.length - 4)
  assert.ok(!statuses.includes(200), statuses.join())
  // A call whose body is still being read when the session ends finds no session any more.
  await until('each call is refused or under way', async () => {
    const { body } = await gateway.admin<{ sessions: { inFlight: number }[] }>('/admin/sessions')
    const underWay = body.sessions.reduce((sum, { inFlight }) => sum + inFlight, 0)
    return underWay + statuses.length >= calls.length
  })
  await client.leave()
  await Promise.all(calls)
  assert.ok(statuses.includes(200), statuses.join())
  await isServed()
  assert.equal(await gateway.metric('breakwater_request_body_bytes'), 0)
})

test('bodies of very many values are refused before they are parsed', async () => {
  const client = await RawClient.open(gateway.mcp('local'))
  for (const value of ['{}', '[]', '1', '""', '['.repeat(50) + ']'.repeat(50)]) {
    const many = Array.from({ length: Math.floor((4 * MIB) / (value.length + 1)) - 100 }, () => value).join()
    const body = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":{"text":"x","a":[${many}]}}}`
    const { error } = await answerTo(client.url, body, client.headers)
    assert.match(String((error as Json).message), /more than 100000 values/)
  }
  await client.leave()
  await isServed()
})

test('bodies of operators that are nested too deeply are refused, and are no defect', async () => {
  const headers = { 'content-type': 'application/json' }
  for (const path of ['/chaos/inject', '/chaos/clear', '/admin/servers', '/admin/outcomes'])
    for (const body of [deep(100_000), deep(100_000, '[', ']'), `{"a":${deep(10_000)}}`]) {
      const { status, body: said } = await gateway.admin(path, { method: 'POST', headers, body })
      assert.equal(status, 400, path)
      assert.match(JSON.stringify(said), /nested more than 128 deep/)
    }
  await isServed()
})

/** A text in chunks of so many characters. */
const inChunks = (text: string, size: number) => {
  let all = ''
  for (let at = 0; at < text.length; at += size) {
    const chunk = text.slice(at, at + size)
    all += `${chunk.length.toString(16)}\r\n${chunk}\r\n`
  }
  return all
}

test('a body in chunks of one byte is refused as soon as it is clear what it is', async () => {
  const socket = await RawSocket.open(gateway.mcp(), { ...version, 'transfer-encoding': 'chunked' })
  await socket.begin(inChunks('x'.repeat(64 * KIB), 1))
  await until('it is refused, and the connection closed', () => socket.isClosed)
  assert.match(socket.text, /^HTTP\/1\.1 400 [^]*the body comes in chunks of 1\.0 bytes/)
  await isServed()
})

test('a body in chunks that nobody reads ends its connection, whatever answers the request', async () => {
  for (const path of ['/nowhere', '/livez', '/mcp/nowhere']) {
    const url = new URL(path, gateway.mcp()).href
    const socket = await RawSocket.open(url, { ...version, 'transfer-encoding': 'chunked' })
    await socket.begin(inChunks('x'.repeat(4 * KIB), 1))
    await until('the connection is closed', () => socket.isClosed)
  }
  await isServed()
})

test('a body of 4 MB in chunks of 32 bytes costs about its size', async (t) => {
  const client = await RawClient.open(gateway.mcp())
  const beforehand = await held()
  const socket = await RawSocket.open(client.url, { ...client.headers, 'transfer-encoding': 'chunked' })
  const chunked = (text: string) => inChunks(text, 32)
  await socket.begin(chunked('{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":"'))
  const piece = Buffer.from(chunked('x'.repeat(64 * KIB)))
  for (let n = 0; n < 60; n++) await socket.write(piece)
  const received = async () => (await gateway.metric('breakwater_request_body_bytes')) ?? 0
  await until('all of it has come', async () => (await received()) > 60 * 64 * KIB)
  const more = (await held()) - beforehand
  t.diagnostic(`${Math.round(more / KIB)} KiB more for ${Math.round((await received()) / KIB)} KiB`)
  assert.ok(more < 40 * MIB, `${Math.round(more / MIB)} MiB more`)
  await socket.write(`${chunked('"}}')}0\r\n\r\n`)
  await until('it is answered', () => socket.text.includes('"result":{}'))
  socket.close()
  await client.leave()
  await isServed()
})

test('200 bodies that stop coming are told so and cut off, and nothing of them stays', async () => {
  const beforehand = (await gateway.metric('breakwater_request_bodies_refused_total', 'stalled')) ?? 0
  const stalled = await Promise.all(
    Array.from({ length: 200 }, async () => {
      const socket = await RawSocket.open(gateway.mcp(), { ...version, 'content-length': '1000000' })
      await socket.begin('{"jsonrpc":"2.0"')
      return socket
    }),
  )
  await isServed()
  await until('all were cut off', () => stalled.every(({ isClosed }) => isClosed))
  for (const { text } of stalled) assert.match(text, /^HTTP\/1\.1 408 [^]*nothing of the body came for 5s/)
  const refused = (await gateway.metric('breakwater_request_bodies_refused_total', 'stalled')) ?? 0
  assert.equal(refused - beforehand, 200)
  assert.equal(await gateway.metric('breakwater_request_bodies '), 0)
  assert.equal(await gateway.metric('breakwater_request_body_bytes'), 0)
  await isServed()
})

test('more bodies than may be on their way get HTTP 503 and when to try again, and end no upload of another agent', async () => {
  const upload = JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'ping', params: { x: 'x'.repeat(2 * MIB) } })
  const slow = await RawSocket.open(gateway.mcp(), {
    ...bystander.headers,
    'content-length': String(upload.length),
  })
  await slow.begin(upload.slice(0, MIB))
  const large = `{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":"${'x'.repeat(3 * MIB)}`
  const sockets = await Promise.all(
    Array.from({ length: 8 }, () =>
      RawSocket.open(gateway.mcp(), { ...version, 'content-length': String(4 * MIB) }),
    ),
  )
  await Promise.all(sockets.map((socket) => socket.begin(large)))
  await until('some were refused', () => sockets.some(({ text }) => text.includes('HTTP/1.1 503')))
  const { text = '' } = sockets.find((socket) => socket.text.includes('HTTP/1.1 503')) ?? {}
  assert.match(text, /retry-after: 1\r\n/i)
  assert.match(text, /BW_OVERLOADED/)
  assert.match(text, / on their way[^(]* \(\d+ of 16777216\)/)
  await isServed()
  await slow.write(upload.slice(MIB))
  await until('the upload is answered', () => slow.text !== '')
  assert.match(slow.text, /"result":\{\}/)
  for (const socket of [slow, ...sockets]) socket.close()
  await until('none is on its way', async () => (await gateway.metric('breakwater_request_bodies ')) === 0)
})

test('a client that sends a body which is refused reads why, also over a connection that it wants closed', async () => {
  const large = Buffer.alloc(6 * MIB, ' ')
  const refusal = () =>
    new Promise<number | undefined>((resolve, reject) => {
      const headers = { ...version, 'content-type': 'application/json', connection: 'close' }
      const posted = request(gateway.mcp(), { method: 'POST', headers, agent: false }, (response) => {
        response.resume().once('end', () => resolve(response.statusCode))
      })
      posted.once('error', reject).end(large)
    })
  for (let n = 0; n < 20; n++) assert.equal(await refusal(), 413)
})

test('a body that is no UTF-8 is refused: what it says would depend on who reads it', async () => {
  const body = Buffer.from('{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"local__e?cho"}}')
  body[body.indexOf('?')] = 0xff
  const socket = await RawSocket.open(gateway.mcp(), {
    ...bystander.headers,
    'content-length': String(body.length),
  })
  await socket.begin(body)
  await until('it is answered', () => socket.text.includes('-32700'))
  assert.match(socket.text, /^HTTP\/1\.1 400 [^]*not UTF-8/)
  socket.close()
})

test('replies to requests that are refused, which nobody reads, are held no longer than others', async (t) => {
  const beforehand = await held()
  const request = { jsonrpc: '2.0', id: 'x'.repeat(4 * MIB - 1_000), method: 'tools/list', params: {} }
  const deaf = []
  for (let n = 0; n < 80; n++) {
    deaf.push(await postDeaf(gateway.mcp(), { 'mcp-protocol-version': '2026-07-28' }, request))
    await until('it has come', async () => (await gateway.metric('breakwater_request_bodies ')) === 0)
  }
  await until('some are closed', async () => {
    const closed = await gateway.sums('breakwater_unread_closed_total', 'cause', '')
    return Object.values(closed).length > 0
  })
  const more = (await held()) - beforehand
  t.diagnostic(`${Math.round(more / MIB)} MiB more`)
  assert.ok(more < 100 * MIB, `${Math.round(more / MIB)} MiB more`)
  for (const client of deaf) client.close()
  await isServed()
})

test('hundreds of clients that send a thousand requests at once are cut off, and cost next to nothing', async () => {
  const { host } = new URL(gateway.data)
  const many = `GET /nothing HTTP/1.1\r\nhost: ${host}\r\n\r\n`.repeat(1_300)
  const sockets = await Promise.all(Array.from({ length: 300 }, () => RawSocket.open(gateway.mcp())))
  for (const socket of sockets) void socket.write(many)
  await until('all are cut off', () => sockets.every(({ isClosed }) => isClosed))
  const refused = await gateway.sums('breakwater_quota_refused_total', 'limit', 'limit="pipelined')
  assert.equal(
    Object.values(refused).reduce((sum, count) => sum + count, 0),
    300,
  )
  await isServed()
})

test('connections beyond the share of a client are closed at once, and others are let in', async () => {
  const sockets = await Promise.all(Array.from({ length: 600 }, () => RawSocket.open(gateway.mcp())))
  await until('some were closed', async () => {
    const refused =
      (await gateway.metric('breakwater_quota_refused_total', 'limit="connections_per_client"')) ?? 0
    return refused >= 150 && sockets.filter(({ isClosed }) => isClosed).length >= refused
  })
  assert.equal(await bystander.say('local__echo', { text: 'still' }), 'still')
  const other = await RawSocket.open(gateway.mcp(), { 'content-length': '2' }, '127.0.0.2')
  await other.begin('{}')
  await until('another client is answered', () => other.text.startsWith('HTTP/1.1 400'))
  other.close()
  for (const socket of sockets) socket.close()
  await until('there is room again', async () => {
    const socket = await RawSocket.open(gateway.mcp(), { 'content-length': '2' })
    await socket.begin('{}')
    await until('it is answered or closed', () => socket.isClosed || socket.text !== '')
    socket.close()
    return socket.text.includes('HTTP/1.1 400')
  })
  await isServed()
})
