import assert from 'node:assert/strict'
import { request } from 'node:http'
import { after, before, test } from 'node:test'
import { until } from '../../support/until.ts'
import { cleanUp, type Json } from '../support/gateway.ts'
import { heldBy } from '../support/memory.ts'
import { headersOf, metaOf } from '../support/modern-client.ts'
import { post, RawClient } from '../support/raw-client.ts'
import { RawSocket } from '../support/raw-socket.ts'
import { stdioToolbox } from '../support/toolbox.ts'
import { Scene } from './scene.ts'

// Single limits of bodies are in test/downstream/http, invalid bodies in test/exchanges/script.

const KIB = 1024
const MIB = 1024 ** 2

/** Longest time for an immediate answer, in milliseconds; a missing answer never comes. */
const ANSWER_MS = 10_000

/** A request that names a version may be larger than an initialize request. */
const version = { 'mcp-protocol-version': '2025-11-25' }

let scene: Scene
let gateway: Scene['gateway']

before(async () => {
  const limits = { connections: 800, memory: '320MiB', stalled: '15s' }
  scene = await Scene.start({ gateway: { maxBody: '4MiB', limits }, servers: { local: stdioToolbox() } })
  gateway = scene.gateway
})
after(async () => {
  await isServed()
  // The gateway reported no bug of its own.
  assert.deepEqual(
    gateway.log.filter(({ level }) => level === 50),
    [],
  )
  await cleanUp()
})

/** Other clients are served, and nothing is left of refused requests. */
async function isServed(): Promise<void> {
  await scene.isServed()
  await gateway.waitForCalls(0)
}

/** Returns an answer from JSON or a stream; rejects without an answer in time. */
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

/** Values where a string belongs. */
const strange = ['{"toString":1}', '{"toString":1,"valueOf":2}', '[["a"]]', '{"length":9}', 'true']

/** Troublesome parameters of a request, as JSON text, with the code of the error. */
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
  ['tools/call', `"name":"local__echo","arguments":{"a":[${'{},'.repeat(200_000)}1]}`, -32600],
]

test('every request gets an answer in either era, even with a wrong type in place of a string', async () => {
  const meta = JSON.stringify(metaOf()).slice(1, -1)
  for (const server of [undefined, 'local']) {
    const client = await RawClient.open(gateway.mcp(server))
    for (const [method, params, code] of troubles) {
      const bodyOf = (text: string) => `{"jsonrpc":"2.0","id":"x","method":"${method}","params":{${text}}}`
      const { id, error } = await answerTo(client.url, bodyOf(params), client.headers)
      assert.equal((error as Json).code, code, params.slice(0, 200))
      if (code === -32602) assert.equal(id, 'x')
      const whole = params.includes('"_meta":{')
        ? params.replace('"_meta":{', `"_meta":{${meta},`)
        : `${params},"_meta":{${meta}}`
      const name = /"name":"([^"]*)"/.exec(params)?.[1]
      const headers = headersOf({ method, params: name === undefined ? {} : { name } })
      const modern = await answerTo(client.url, bodyOf(whole), headers)
      assert.equal((modern.error as Json).code, code, whole.slice(0, 300))
    }
    await client.leave()
  }
  await isServed()
})

test("the list of sessions shows printable parts of clients' descriptions", async () => {
  const info = `{"name":"odd","version":["1"],"x":${deep(100)}}`
  const params = `{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":${info}}`
  const odd = await post(gateway.mcp(), `{"jsonrpc":"2.0","id":1,"method":"initialize","params":${params}}`)
  const session = { 'mcp-session-id': odd.headers.get('mcp-session-id') ?? '' }
  const { body } = await gateway.admin<{ sessions: { client: Json }[] }>('/admin/sessions')
  assert.deepEqual(body.sessions.at(-1)?.client, { name: 'odd' })
  await fetch(gateway.mcp(), { method: 'DELETE', headers: session })
})

test('120 clients with large descriptions or headers leave nothing behind', async (t) => {
  const filler = 'x'.repeat(63 * KIB)
  const beforehand = await heldBy(gateway)
  const kept: string[] = []

  for (let n = 0; n < 60; n++) {
    const params = { protocolVersion: '2025-11-25', capabilities: {}, clientInfo: { name: 'big', x: filler } }
    const large = { jsonrpc: '2.0', id: 1, method: 'initialize', params }
    const huge = JSON.stringify({ ...large, beside: 'x'.repeat(4 * MIB - 1_000 * KIB) })
    // Most clients name no version before the handshake.
    const socket = await RawSocket.open(gateway.mcp(), { 'content-length': String(huge.length) })
    await socket.begin(huge)
    await until('the body is refused', () => socket.text.startsWith('HTTP/1.1 413 '))
    socket.close()
    for (const body of [JSON.stringify(large), huge])
      assert.match(JSON.stringify(await answerTo(gateway.mcp(), body, version)), /at most 16384/)
    const info = { name: `a name that is longer than some ${n}`, version: '1' }
    const beside = { ...large, params: { ...params, clientInfo: info }, beside: filler }
    const { headers } = await post(gateway.mcp(), JSON.stringify(beside))
    kept.push(headers.get('mcp-session-id') ?? '')
  }
  const more = (await heldBy(gateway)) - beforehand
  t.diagnostic(`${Math.round(more / KIB)} KiB more with ${kept.length} sessions`)
  assert.ok(more < 20 * MIB, `${Math.round(more / MIB)} MiB more`)
  for (const id of kept) await fetch(gateway.mcp(), { method: 'DELETE', headers: { 'mcp-session-id': id } })
  await isServed()
})

test('a POST without a body and the request behind it are answered', async () => {
  for (const path of [gateway.mcp(), gateway.mcp('local')])
    for (const headers of [{}, { 'content-length': '0' }, version, scene.bystander.headers]) {
      const { pathname, port } = new URL(path)
      const lines = Object.entries(headers).map(([name, value]) => `${name}: ${value}\r\n`)
      const text = `POST ${pathname} HTTP/1.1\r\nhost: 127.0.0.1:${port}\r\n${lines.join('')}\r\n`
      const socket = await RawSocket.open(path)
      await socket.write(`${text}GET /livez HTTP/1.1\r\nhost: 127.0.0.1:${port}\r\n\r\n`)
      await until('both requests are answered', () => socket.text.split('HTTP/1.1 ').length === 3)
      assert.match(socket.text, /^HTTP\/1\.1 400 [^]*no body[^]*HTTP\/1\.1 200 /)
      socket.close()
    }
  await isServed()
})

test('a HEAD request does not take over the stream of a listening client', async () => {
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

test('the control plane refuses deeply nested bodies, without an internal error', async () => {
  const headers = { 'content-type': 'application/json' }
  for (const path of ['/chaos/inject', '/chaos/clear', '/admin/servers', '/admin/outcomes'])
    for (const body of [deep(100_000), deep(100_000, '[', ']'), `{"a":${deep(10_000)}}`]) {
      const { status, body: said } = await gateway.admin(path, { method: 'POST', headers, body })
      assert.equal(status, 400, path)
      assert.match(JSON.stringify(said), /nested more than 128 deep/)
    }
  await isServed()
})

const inChunks = (text: string, size: number) => {
  let all = ''
  for (let at = 0; at < text.length; at += size) {
    const chunk = text.slice(at, at + size)
    all += `${chunk.length.toString(16)}\r\n${chunk}\r\n`
  }
  return all
}

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
  const beforehand = await heldBy(gateway)
  const socket = await RawSocket.open(client.url, { ...client.headers, 'transfer-encoding': 'chunked' })
  const chunked = (text: string) => inChunks(text, 32)
  await socket.begin(chunked('{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":"'))
  const piece = Buffer.from(chunked('x'.repeat(64 * KIB)))
  for (let n = 0; n < 60; n++) await socket.write(piece)
  const received = async () => (await gateway.metric('breakwater_request_body_bytes')) ?? 0
  await until('all chunks have come', async () => (await received()) > 60 * 64 * KIB)
  const more = (await heldBy(gateway)) - beforehand
  t.diagnostic(`${Math.round(more / KIB)} KiB more for ${Math.round((await received()) / KIB)} KiB`)
  assert.ok(more < 40 * MIB, `${Math.round(more / MIB)} MiB more`)
  await socket.write(`${chunked('"}}')}0\r\n\r\n`)
  await until('the request is answered', () => socket.text.includes('"result":{}'))
  socket.close()
  await client.leave()
  await isServed()
})

test('200 stalled bodies get an error and are cut off, and nothing of them stays', async () => {
  const beforehand = (await gateway.metric('breakwater_request_bodies_refused_total', 'stalled')) ?? 0
  const stalled = await Promise.all(
    Array.from({ length: 200 }, async () => {
      const socket = await RawSocket.open(gateway.mcp(), { ...version, 'content-length': '1000000' })
      await socket.begin('{"jsonrpc":"2.0"')
      return socket
    }),
  )
  await isServed()
  await until('all stalled bodies were cut off', () => stalled.every(({ isClosed }) => isClosed))
  for (const { text } of stalled) assert.match(text, /^HTTP\/1\.1 408 [^]*no byte of the body came for 5s/)
  const refused = (await gateway.metric('breakwater_request_bodies_refused_total', 'stalled')) ?? 0
  assert.equal(refused - beforehand, 200)
  assert.equal(await gateway.metric('breakwater_request_bodies '), 0)
  assert.equal(await gateway.metric('breakwater_request_body_bytes'), 0)
  await isServed()
})

test('more bodies than may be on their way get HTTP 503 and when to try again, and end no upload of another agent', async () => {
  const upload = JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'ping', params: { x: 'x'.repeat(2 * MIB) } })
  const slow = await RawSocket.open(scene.bystander.url, {
    ...scene.bystander.headers,
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
  await until('some bodies were refused', () => sockets.some(({ text }) => text.includes('HTTP/1.1 503')))
  const { text = '' } = sockets.find((socket) => socket.text.includes('HTTP/1.1 503')) ?? {}
  assert.match(text, /retry-after: 1\r\n/i)
  assert.match(text, /BW_OVERLOADED/)
  assert.match(text, / on their way[^(]* \(\d+ of 16777216\)/)
  await isServed()
  await slow.write(upload.slice(MIB))
  await until('the upload is answered', () => slow.text !== '')
  assert.match(slow.text, /"result":\{\}/)
  for (const socket of [slow, ...sockets]) socket.close()
  await until('no body is on its way', async () => (await gateway.metric('breakwater_request_bodies ')) === 0)
})

test('a client that sends a refused body reads the reason, also over a connection it wants closed', async () => {
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

test('connections beyond the share of a client are closed at once, and others are let in', async () => {
  const sockets = await Promise.all(Array.from({ length: 600 }, () => RawSocket.open(gateway.mcp())))
  await until('some connections were closed', async () => {
    const refused =
      (await gateway.metric('breakwater_quota_refused_total', 'limit="connections_per_client"')) ?? 0
    return refused >= 150 && sockets.filter(({ isClosed }) => isClosed).length >= refused
  })
  assert.equal(await scene.bystander.say('echo', { text: 'still' }), 'still')
  const other = await RawSocket.open(gateway.mcp(), { 'content-length': '2' }, { localAddress: '127.0.0.2' })
  await other.begin('{}')
  await until('another client is answered', () => other.text.startsWith('HTTP/1.1 400'))
  other.close()
  for (const socket of sockets) socket.close()
  await until('there is room again', async () => {
    const socket = await RawSocket.open(gateway.mcp(), { 'content-length': '2' })
    await socket.begin('{}')
    await until('the connection has an answer, or is closed', () => socket.isClosed || socket.text !== '')
    socket.close()
    return socket.text.includes('HTTP/1.1 400')
  })
  await isServed()
})
