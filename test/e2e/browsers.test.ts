import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'
import { cleanUp, Gateway } from './support/gateway.ts'
import { stdioToolbox } from './support/toolbox.ts'

const PAGE = 'https://app.example.com'

let gateway: Gateway

before(async () => {
  gateway = await Gateway.start({ gateway: { allowedOrigins: [PAGE] }, servers: { local: stdioToolbox() } })
  await gateway.waitFor('up', 'local')
})
after(cleanUp)

const json = { 'content-type': 'application/json', accept: 'application/json, text/event-stream' }

function ask(method: string, headers: Readonly<Record<string, string>>, body?: object): Promise<Response> {
  const init = body === undefined ? { method, headers } : { method, headers, body: JSON.stringify(body) }
  return fetch(gateway.mcp(), init)
}

function preflight(origin: string, headers: string): Promise<Response> {
  const asked = { 'access-control-request-method': 'POST', 'access-control-request-headers': headers }
  return ask('OPTIONS', { origin, ...asked })
}

const shared = ({ headers }: Response) => headers.get('access-control-allow-origin')

test('a page that is allowed may ask, call, read its session and its stream', async () => {
  const allowed = await preflight(PAGE, 'content-type, mcp-session-id, x-breakwater-deadline-ms')
  assert.equal(allowed.status, 204)
  assert.equal(shared(allowed), PAGE)
  assert.equal(allowed.headers.get('access-control-allow-methods'), 'GET, POST, DELETE')
  assert.equal(
    allowed.headers.get('access-control-allow-headers'),
    'content-type, mcp-session-id, x-breakwater-deadline-ms',
  )
  assert.equal(allowed.headers.get('access-control-allow-credentials'), null)

  const params = {
    protocolVersion: '2025-11-25',
    capabilities: {},
    clientInfo: { name: 'page', version: '1' },
  }
  const page = { ...json, origin: PAGE }
  const opened = await ask('POST', page, { jsonrpc: '2.0', id: 1, method: 'initialize', params })
  assert.equal(opened.status, 200)
  assert.equal(shared(opened), PAGE)
  assert.equal(opened.headers.get('vary'), 'Origin')
  assert.match(opened.headers.get('access-control-expose-headers') ?? '', /Mcp-Session-Id/)
  await opened.text()
  const session = { ...page, 'mcp-session-id': opened.headers.get('mcp-session-id') ?? '' }

  const call = { name: 'local__echo', arguments: { text: 'hello' } }
  const answered = await ask('POST', session, { jsonrpc: '2.0', id: 2, method: 'tools/call', params: call })
  assert.equal(shared(answered), PAGE)
  assert.match(await answered.text(), /hello/)
  const stream = await ask('GET', session)
  assert.deepEqual([stream.status, shared(stream)], [200, PAGE])
  await stream.body?.cancel()
  const ended = await ask('DELETE', session)
  assert.deepEqual([ended.status, shared(ended)], [204, PAGE])
})

test('a page may read errors too', async () => {
  const refused = await ask('POST', { ...json, origin: PAGE }, { jsonrpc: '1.0' })
  assert.equal(refused.status, 400)
  assert.equal(shared(refused), PAGE)
})

test('other pages may neither ask nor read, and non-browser clients get no CORS headers', async () => {
  const stranger = await preflight('https://evil.example', 'content-type')
  assert.deepEqual([stranger.status, shared(stranger)], [403, null])
  const ping = { jsonrpc: '2.0', id: 1, method: 'ping' }
  const called = await ask('POST', { ...json, origin: 'https://evil.example' }, ping)
  assert.deepEqual([called.status, shared(called)], [403, null])
  const plain = await ask('POST', json, ping)
  assert.equal(shared(plain), null)
  assert.equal(plain.headers.get('access-control-expose-headers'), null)
})

test('a preflight reply does not repeat invalid header names', async () => {
  const odd = await preflight(PAGE, 'content-type, *;x="1"')
  assert.deepEqual([odd.status, odd.headers.get('access-control-allow-headers')], [204, null])
})

test('a page may no longer call once a reload removes it from the allowed origins', async () => {
  await gateway.reconfigure({ gateway: { allowedOrigins: [] }, servers: { local: stdioToolbox() } })
  await gateway.post('/admin/reload')
  const refused = await preflight(PAGE, 'content-type')
  assert.deepEqual([refused.status, shared(refused)], [403, null])
})
