import assert from 'node:assert/strict'
import { request } from 'node:http'
import { after, before, test } from 'node:test'
import { text } from 'node:stream/consumers'
import { cleanUp, Gateway, type Json } from './support/gateway.ts'
import { post, RawClient } from './support/raw-client.ts'
import { RawSocket } from './support/raw-socket.ts'
import { stdioToolbox } from './support/toolbox.ts'
import { until } from '../support/until.ts'

const ping = JSON.stringify({ jsonrpc: '2.0', id: 7, method: 'ping' })

let gateway: Gateway
let client: RawClient

before(async () => {
  gateway = await Gateway.start({
    gateway: { maxBody: '64KiB', allowedOrigins: ['https://app.example.com'] },
    servers: { local: stdioToolbox() },
  })
  await gateway.waitFor('up', 'local')
  client = await RawClient.open(gateway.mcp())
})
after(async () => {
  assert.equal(await client.say('local__echo', { text: 'serving all the same' }), 'serving all the same')
  await cleanUp()
})

interface Refusal {
  readonly status: number
  readonly code?: number
  readonly id?: unknown
  readonly message?: RegExp
}

async function refused(reply: { status: number; text: string }, expected: Refusal): Promise<void> {
  assert.equal(reply.status, expected.status, reply.text)
  if (expected.code === undefined) return
  const { jsonrpc, id, error } = JSON.parse(reply.text) as { jsonrpc: string; id: unknown; error: Json }
  assert.equal(jsonrpc, '2.0')
  assert.equal(error.code, expected.code, reply.text)
  assert.equal(id, expected.id ?? null)
  if (expected.message !== undefined) assert.match(String(error.message), expected.message)
}

/** Posts with headers that `fetch` would not let through. */
async function postWith(
  headers: Record<string, string | string[]>,
): Promise<{ status: number; text: string }> {
  const all = { 'content-type': 'application/json', ...client.headers, ...headers }
  return new Promise((resolve, reject) => {
    const asking = request(gateway.mcp(), { method: 'POST', headers: all }, (response) => {
      void text(response).then((body) => resolve({ status: response.statusCode ?? 0, text: body }))
    })
    asking.once('error', reject)
    asking.end(ping)
  })
}

test('a body that is no JSON is a parse error', async () => {
  for (const body of ['{"jsonrpc":', '', 'hello', '{"a":1}{"b":2}'])
    await refused(await client.post(body), { status: 400, code: -32700 })
})

test('JSON that is no JSON-RPC is an invalid request, under its id if it has one', async () => {
  for (const body of ['null', '7', '"x"', '{}', '{"jsonrpc":"1.0","id":1,"method":"ping"}', '[]', '[1]']) {
    const reply = await client.post(body)
    const id = body.includes('"id"') ? 1 : null
    await refused(reply, { status: 400, code: -32600, id })
  }
})

test('only JSON is taken, and only so much of it', async () => {
  await refused(await client.post(ping, { 'content-type': 'text/plain' }), { status: 415 })
  await refused(await client.post(ping, { 'content-type': 'application/x-www-form-urlencoded' }), {
    status: 415,
  })
  const large = JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'ping', params: { x: 'x'.repeat(70_000) } })
  await refused(await client.post(large), { status: 413 })
  assert.equal((await client.post(ping, { 'content-type': 'application/json; charset=utf-8' })).status, 200)
})

test('a session is needed, has to be known, and belongs to one endpoint', async () => {
  await refused(await post(gateway.mcp(), ping), { status: 400, code: -32000, message: /Mcp-Session-Id/ })
  await refused(await client.post(ping, { 'mcp-session-id': 'nobody' }), { status: 404, code: -32001 })
  await refused(await post(gateway.mcp('local'), ping, client.headers), { status: 404, code: -32001 })
})

test('an unknown server is named, with those that there are', async () => {
  const initializeRequest = { jsonrpc: '2.0', id: 1, method: 'initialize', params: {} }
  const reply = await post(gateway.mcp('locall'), JSON.stringify(initializeRequest))
  await refused(reply, { status: 404, code: -32600, message: /locall.*local/ })
})

test('unknown tools and methods are errors of the protocol', async () => {
  for (const name of ['local__nothing', 'nowhere__echo', 'echo', '', '__']) {
    const { error } = (await client.call(name)) as { error: Json }
    assert.equal(error.code, -32602, name)
  }
  const { error } = (await client.request('no/such/method')) as { error: Json }
  assert.equal(error.code, -32601)
})

test('an id that is still in use is refused, and the call that has it goes on', async () => {
  const call = { jsonrpc: '2.0', id: 'twice', method: 'tools/call' }
  const slow = client.post({ ...call, params: { name: 'local__sleep', arguments: { ms: 500 } } })
  await gateway.waitForCalls(1)
  const second = await client.post({ ...call, params: { name: 'local__echo', arguments: { text: 'no' } } })
  await refused(second, { status: 200, code: -32600, id: 'twice' })
  assert.match((await slow).text, /slept 500 ms/)
})

test('batches exist in one version only', async () => {
  await refused(await client.post(`[${ping}]`), { status: 400, code: -32600, message: /batch/ })
  const old = await RawClient.open(gateway.mcp(), { version: '2025-03-26' })
  assert.equal((await old.post(`[${ping}]`)).status, 200)
  await refused(await old.post('[]'), { status: 400, code: -32600 })
})

test('headers of the protocol that come several times alike count once', async () => {
  const { 'mcp-protocol-version': version = '', 'mcp-session-id': session = '' } = client.headers
  for (const headers of [
    { 'mcp-protocol-version': [version, version] },
    { 'mcp-protocol-version': `${version},${version},  ${version}` },
    { 'mcp-session-id': [session, session] },
  ])
    assert.equal((await postWith(headers)).status, 200, JSON.stringify(headers))
  const differing = await postWith({ 'mcp-protocol-version': [version, '2025-03-26'] })
  await refused(differing, { status: 400, code: -32000, message: new RegExp(`${version}, 2025-03-26`) })
})

test('an unknown protocol version is refused', async () => {
  const reply = await client.post(ping, { 'mcp-protocol-version': '1999-01-01' })
  await refused(reply, { status: 400, code: -32000, message: /1999-01-01/ })
})

test('pages and names of other hosts are refused', async () => {
  await refused(await postWith({ origin: 'https://evil.example' }), { status: 403, code: -32600 })
  await refused(await postWith({ origin: 'null' }), { status: 403, code: -32600 })
  await refused(await postWith({ host: 'evil.example' }), { status: 403, code: -32600 })
  await refused(await postWith({ host: '127.0.0.1.evil.example' }), { status: 403, code: -32600 })
  assert.equal((await postWith({ origin: 'https://app.example.com' })).status, 200)
  assert.equal((await postWith({ origin: 'http://localhost:3000' })).status, 200)
  assert.equal((await postWith({ host: 'localhost' })).status, 200)
})

test('a client that is still sending a body which is refused reads why, and its connection goes on', async () => {
  const length = 4 * 1024 ** 2
  for (let n = 0; n < 20; n++) {
    const socket = await RawSocket.open(gateway.mcp(), { 'content-length': String(length) })
    await socket.begin('x'.repeat(length / 2))
    await until('it is refused', () => socket.text.startsWith('HTTP/1.1 413 '))
    await socket.write('x'.repeat(length / 2))
    await socket.write(`GET /livez HTTP/1.1\r\nhost: ${new URL(gateway.mcp()).host}\r\n\r\n`)
    await until('the next request is answered', () => socket.text.includes('HTTP/1.1 200 '))
    socket.close()
  }
})

test('a connection whose refused body never comes to its end is closed', async () => {
  const socket = await RawSocket.open(gateway.mcp(), { 'content-length': String(4 * 1024 ** 2) })
  await socket.begin('x')
  await until('it is closed', () => socket.isClosed)
  assert.match(socket.text, /^HTTP\/1\.1 413 /)
})

test('a target that cannot be read is refused in the words of its plane, and not repeated as a whole', async () => {
  for (const path of ['/mcp/%ff', `/mcp/${'x'.repeat(300)}`]) {
    const data = await fetch(gateway.data + path, { method: 'POST', body: ping })
    const control = await fetch(gateway.control + path)
    for (const reply of [data, control]) {
      const said = await reply.text()
      assert.ok(reply.status >= 400 && reply.status < 500, said)
      assert.doesNotMatch(said, /FST_ERR|%ff/)
      assert.ok(said.length < 300, said)
    }
  }
})

test('too large a body to the chaos API is answered, however fast it comes', async () => {
  const headers = { 'content-type': 'application/json' }
  const body = `"${'x'.repeat(5_000_000)}"`
  for (let count = 0; count < 8; count++) {
    const { status } = await gateway.admin('/chaos/inject', { method: 'POST', body, headers })
    assert.equal(status, 413)
  }
})
