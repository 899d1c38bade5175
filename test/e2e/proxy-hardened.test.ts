import assert from 'node:assert/strict'
import { writeFile } from 'node:fs/promises'
import { createServer as createHttps } from 'node:https'
import { connect, createServer, type AddressInfo, type Server, type Socket } from 'node:net'
import { join } from 'node:path'
import { after, before, test } from 'node:test'
import { cert, key } from '../fixtures/tls.ts'
import { until } from '../support/until.ts'
import { cleanUp, Gateway, newFolder, type Json } from './support/gateway.ts'
import { closeServers, RawServer } from './support/raw-server.ts'

const MAX_BODY = 64 * 1024
const MAX_REPLY = 32 * 1024

let gateway: Gateway
let server: RawServer
const others: { close(): unknown }[] = []

async function listening(started: Server): Promise<string> {
  others.push(started)
  await new Promise<void>((resolve) => started.listen(0, '127.0.0.1', resolve))
  return `127.0.0.1:${(started.address() as AddressInfo).port}`
}

/** A server that misbehaves on each connection in its own way; records texts and connections. */
class Breaking {
  readonly requests: string[] = []
  readonly sockets = new Set<Socket>()
  host = ''

  static async start(answer: (socket: Socket) => void): Promise<Breaking> {
    const breaking = new Breaking()
    const started = createServer((socket) => {
      breaking.sockets.add(socket)
      socket.once('close', () => breaking.sockets.delete(socket))
      socket.on('error', () => undefined)
      socket.on('data', (chunk) => {
        const text = chunk.toString('latin1')
        // The gateway itself asks for /mcp.
        if (/^\w+ \/base\/mcp HTTP/.test(text))
          return void socket.end('HTTP/1.1 503 Busy\r\ncontent-length: 0\r\n\r\n')
        breaking.requests.push(text)
        answer(socket)
      })
    })
    breaking.host = await listening(started)
    return breaking
  }

  get entry(): Json {
    return { url: `http://${this.host}/base/mcp`, passthrough: true }
  }
}

let resetting: Breaking
let silent: Breaking
let chatty: Breaking
let trickling: Breaking
let busy: Breaking
let strange: Breaking
let torn: Breaking
let odd: Breaking

before(async () => {
  server = await RawServer.start(({ verb, url, message }, response) => {
    if (message.jsonrpc !== undefined || (verb === 'DELETE' && url === '/base/mcp')) return false
    if (url.includes('/redirect?to=')) {
      response.writeHead(302, { location: decodeURIComponent(url.split('to=')[1] ?? '') }).end()
      return true
    }
    if (url.endsWith('/big')) {
      response.writeHead(200, { 'content-length': MAX_REPLY + 1 }).end('x'.repeat(MAX_REPLY + 1))
      return true
    }
    if (url.endsWith('/hops')) {
      const hops = {
        connection: 'x-named',
        'x-named': 'a',
        'keep-alive': 'timeout=9',
        'proxy-authenticate': 'Basic',
      }
      response.writeHead(200, { ...hops, 'x-kept': 'b', upgrade: 'websocket', trailer: 'x-t' }).end('done')
      return true
    }
    response.writeHead(200, { 'content-type': 'text/plain' }).end(`${verb} done`)
    return true
  })
  resetting = await Breaking.start((socket) => socket.resetAndDestroy())
  silent = await Breaking.start(() => undefined)
  // Only the end of the connection ends the body.
  chatty = await Breaking.start((socket) => {
    socket.write('HTTP/1.1 200 OK\r\n\r\n')
    socket.end('x'.repeat(MAX_REPLY * 4))
  })
  trickling = await Breaking.start((socket) => socket.write('HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nx'))
  busy = await Breaking.start((socket) =>
    socket.end('HTTP/1.1 503 Busy\r\nretry-after: 1\r\ncontent-length: 4\r\n\r\nbusy'),
  )
  strange = await Breaking.start((socket) => socket.end('this is not HTTP\r\n\r\n'))
  torn = await Breaking.start((socket) => socket.end('HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nx'))
  odd = await Breaking.start((socket) => socket.end('HTTP/1.1 777 Odd\r\ncontent-length: 3\r\n\r\nodd'))

  const folder = await newFolder()
  const ca = join(folder, 'ca.pem')
  await writeFile(ca, cert)
  const tls = await listening(createHttps({ cert, key }, (_, response) => void response.end('over TLS')))
  const url = server.url.replace('/mcp', '/base/mcp')
  const limited = { passthrough: true, maxReply: MAX_REPLY }
  gateway = await Gateway.start(
    {
      gateway: { maxBody: MAX_BODY, maxInFlight: 4, limits: { perClient: 1 } },
      servers: {
        open: { url, ...limited, headers: { 'X-Api-Key': 'configured', 'X-TENANT': 'ours' } },
        basic: { url: url.replace('127.0.0.1', 'user:word@127.0.0.1'), passthrough: true },
        trusting: { url: `https://${tls}/mcp`, passthrough: true, tls: { ca } },
        wary: { url: `https://${tls}/mcp`, passthrough: true },
        gone: { urls: ['http://127.0.0.1:9/mcp', url], passthrough: true },
        resetting: resetting.entry,
        silent: { ...silent.entry, timeouts: { idle: '1s' } },
        slow: silent.entry,
        chatty: { ...chatty.entry, maxReply: MAX_REPLY },
        trickling: trickling.entry,
        busy: busy.entry,
        strange: strange.entry,
        torn: torn.entry,
        odd: odd.entry,
        unconnected: {
          url: `https://${await listening(createServer(() => undefined))}/mcp`,
          passthrough: true,
        },
      },
      policies: {
        overrides: [
          { match: { server: 'slow' }, deadline: { total: '300ms' } },
          { match: { server: 'trickling' }, deadline: { total: '300ms' } },
          { match: { server: 'unconnected' }, deadline: { total: '300ms' } },
        ],
      },
    },
    { args: ['--log-level', 'trace'] },
  )
  await gateway.waitFor('up', 'open')
})
after(async () => {
  await cleanUp()
  closeServers()
  for (const other of others) other.close()
})

interface Answer {
  readonly status: number
  readonly head: string
  readonly body: string
  /** Whether the gateway closed the connection. */
  readonly closed: boolean
}

/** Sends bytes over its own socket, and reads until the reply is complete or the connection closes. */
function raw(bytes: string): Promise<Answer> {
  const { hostname, port } = new URL(gateway.data)
  return new Promise((resolve, reject) => {
    const socket = connect(Number(port), hostname, () => socket.write(bytes, 'latin1'))
    let text = ''
    const done = (closed: boolean) => {
      const [head = '', ...rest] = text.split('\r\n\r\n')
      const status = Number(head.split(' ')[1])
      resolve({ status, head: head.toLowerCase(), body: rest.join('\r\n\r\n'), closed })
      socket.destroy()
    }
    socket.on('data', (chunk) => {
      text = (text + chunk.toString('latin1')).replace(/^HTTP\/1\.1 100 Continue\r\n\r\n/, '')
      if (isWhole(text) && !/^connection: close/im.test(text)) done(false)
    })
    socket.once('end', () => done(true))
    socket.once('error', reject)
  })
}

function isWhole(text: string): boolean {
  const end = text.indexOf('\r\n\r\n')
  if (end === -1) return false
  const length = /^content-length: (\d+)/im.exec(text)
  return length === null ? text.endsWith('0\r\n\r\n') : text.length >= end + 4 + Number(length[1])
}

const host = () => new URL(gateway.data).host

const get = (target: string, ...lines: readonly string[]) =>
  raw([`GET ${target} HTTP/1.1`, `host: ${host()}`, ...lines, '', ''].join('\r\n'))

const ask = (path: string, init: RequestInit = {}) => fetch(`${gateway.data}/proxy/${path}`, init)

/** Returns the error of an answer, which is always JSON in the gateway's words. */
async function errorOf(response: Response): Promise<Json> {
  assert.match(response.headers.get('content-type') ?? '', /^application\/json/)
  return (await response.json()) as Json
}

test("the operator's headers win over the agent's, however they are written", async () => {
  await ask('open/precedence', { headers: { 'x-api-key': 'stolen', 'X-Tenant': 'theirs', 'X-Own': 'kept' } })
  const seen = server.seen.find(({ url }) => url.endsWith('/precedence'))
  assert.equal(seen?.headers['x-api-key'], 'configured')
  assert.equal(seen.headers['x-tenant'], 'ours')
  assert.equal(seen.headers['x-own'], 'kept')
  assert.equal(seen.headers.host, new URL(server.url).host)
  await ask('basic/credentials', { headers: { authorization: 'Bearer stolen' } })
  const basic = server.seen.find(({ url }) => url.endsWith('/credentials'))
  assert.equal(basic?.headers.authorization, `Basic ${Buffer.from('user:word').toString('base64')}`)
})

test('a connection header does not take away what the operator sends', async () => {
  const { status } = await get('/proxy/open/named', 'connection: x-api-key, x-mine, close', 'x-mine: a')
  assert.equal(status, 200)
  const seen = server.seen.find(({ url }) => url.endsWith('/named'))
  assert.equal(seen?.headers['x-api-key'], 'configured')
  assert.equal(seen.headers['x-mine'], undefined)
})

test('headers of one connection stay on it, in both directions', async () => {
  const hops = [
    'keep-alive: 5',
    'te: trailers',
    'trailer: x',
    'proxy-connection: close',
    'expect: 100-continue',
    'proxy-authorization: Basic x',
  ]
  const { head } = await get('/proxy/open/hops', ...hops)
  const { headers = {} } = server.seen.find(({ url }) => url.endsWith('/hops')) ?? {}
  for (const name of ['te', 'trailer', 'proxy-connection', 'expect', 'proxy-authorization'])
    assert.equal(headers[name], undefined, name)
  assert.match(head, /x-kept: b/)
  for (const name of ['x-named', 'proxy-authenticate', 'upgrade', 'trailer', 'timeout=9'])
    assert.ok(!head.includes(name), name)
})

test('paths are relative to the folder of the URL', async () => {
  await ask('open/files/a%20b;v=1?x=%2F..%2F&y')
  assert.ok(server.seen.some(({ url }) => url === '/base/files/a%20b;v=1?x=%2F..%2F&y'))
  for (const path of ['100%25.txt', '..a/b..', 'a...b', '%7Euser', '.well-known/x'])
    assert.equal((await get(`/proxy/open/${path}`)).status, 200, path)
  assert.equal((await get('/proxy/open')).status, 200)
})

test('no path leads out of the folder, however it is written', async () => {
  const before = server.seen.filter(({ verb }) => verb === 'GET').length
  const paths = [
    '../admin',
    'a/../../admin',
    '..',
    '.',
    'a/./b',
    '%2e%2e/admin',
    '.%2E/admin',
    '%2e%2e%2fadmin',
    '..%2fadmin',
    '..%5cadmin',
    '..\\admin',
    'a%2fb',
    'a%5Cb',
    '%252e%252e/admin',
    '%25252e%25252e/admin',
    '..%252fadmin',
    '100%25/%252e%252e/admin',
    '%2525252525252e%2525252525252e/x',
    '..;/admin',
    '..;x=1/admin',
    '%2e%2e;/admin',
    '/evil.example/x',
    '/',
    'a//b',
    'a%00b',
    'a%0d%0ab',
    'a%zz',
    'a%c0%ae%c0%ae/x',
    'a\xff',
    'x#y',
    'x?y#z',
  ]
  for (const path of paths) {
    const { status, body } = await get(`/proxy/open/${path}`)
    assert.equal(status, 400, `${path}: ${body}`)
    assert.match(body, /"error"/, path)
  }
  const targets = [
    `http://${host()}/proxy/open/x`,
    'http://evil.example/proxy/open/x',
    `//${host()}/proxy/open/x`,
    '/proxy/open/../closed/x',
    '/proxy/../admin/servers',
    '/proxy/open%2f..%2f..%2fx',
    '/proxy/open%2fx',
    '\\proxy\\open\\x',
    '*',
  ]
  for (const target of targets) assert.ok([400, 404].includes((await get(target)).status), target)
  assert.equal(server.seen.filter(({ verb }) => verb === 'GET').length, before)
})

test('a request that could be read as two is refused', async () => {
  const before = server.seen.length
  const smuggled = 'GET /admin HTTP/1.1\r\nhost: x\r\n\r\n'
  const both = `POST /proxy/open/x HTTP/1.1\r\nhost: ${host()}\r\ncontent-length: 4\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n${smuggled}`
  assert.equal((await raw(both)).status, 400)
  const twice = `POST /proxy/open/x HTTP/1.1\r\nhost: ${host()}\r\ncontent-length: 4\r\ncontent-length: 5\r\n\r\nabcde`
  assert.equal((await raw(twice)).status, 400)
  const folded = `POST /proxy/open/x HTTP/1.1\r\nhost: ${host()}\r\ntransfer-encoding: xchunked\r\n\r\n${smuggled}`
  assert.ok((await raw(folded)).status >= 400)
  // A server that expects no body on GET would read the body as the next request.
  const withBody = await get('/proxy/open/x', `content-length: ${smuggled.length}`, '', smuggled)
  assert.deepEqual([withBody.status, withBody.closed], [400, true])
  const chunked = await get('/proxy/open/x', 'transfer-encoding: chunked', '', '0', '')
  assert.deepEqual([chunked.status, chunked.closed], [400, true])
  assert.equal(server.seen.length, before)
})

test('an upgrade is refused, and its connection closed', async () => {
  const before = server.seen.length
  for (const protocol of ['websocket', 'h2c', 'x']) {
    const key64 = 'sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ=='
    const lines = ['connection: Upgrade', `upgrade: ${protocol}`, key64, 'sec-websocket-version: 13']
    const { status, closed, body } = await get('/proxy/open/socket', ...lines)
    assert.deepEqual([status, closed], [501, true], protocol)
    assert.match(body, /WebSocket/)
  }
  assert.equal(server.seen.length, before)
})

test('certificates are checked as the entry says', async () => {
  const trusting = await ask('trusting/x')
  assert.deepEqual([trusting.status, await trusting.text()], [200, 'over TLS'])
  const wary = await ask('wary/x')
  assert.equal(wary.status, 502)
  const { error, code, sent } = await errorOf(wary)
  assert.match(String(error), /SELF_SIGNED/)
  assert.deepEqual([code, sent], ['BW_UPSTREAM_UNAVAILABLE', false])
})

test('a too large body is refused, with or without a length header, and its rest is not read', async () => {
  const told = await raw(
    `POST /proxy/open/told HTTP/1.1\r\nhost: ${host()}\r\ncontent-length: ${MAX_BODY + 1}\r\n\r\n`,
  )
  assert.deepEqual([told.status, told.closed], [413, true])
  assert.match(told.body, /gateway\.maxBody/)
  const chunk = `${(MAX_BODY / 2 + 1).toString(16)}\r\n${'x'.repeat(MAX_BODY / 2 + 1)}\r\n`
  const growing = await raw(
    `POST /proxy/open/growing HTTP/1.1\r\nhost: ${host()}\r\ntransfer-encoding: chunked\r\n\r\n${chunk}${chunk}`,
  )
  assert.deepEqual([growing.status, growing.closed], [413, true], growing.body)
  const whole = await ask('open/whole', { method: 'POST', body: 'x'.repeat(MAX_BODY) })
  assert.equal(whole.status, 200)
  assert.equal(server.seen.find(({ url }) => url.endsWith('/whole'))?.text.length, MAX_BODY)
  assert.ok(!server.seen.some(({ url }) => /(told|growing)$/.test(url)))
})

test('a too large reply becomes an error, or is cut off after its head', async () => {
  const told = await ask('open/big')
  assert.equal(told.status, 502)
  assert.deepEqual((await errorOf(told)).code, 'BW_REPLY_TOO_LARGE')
  const begun = await ask('chatty/x')
  const end = await begun.text().then(
    (text) => `${begun.status} ${text}`,
    () => 'cut off',
  )
  assert.match(end, /^cut off$|^502 .*BW_REPLY_TOO_LARGE/)
  await until('the server’s connection is closed', () => chatty.sockets.size === 0)
})

test('text passes as the bytes that it is, with its type', async () => {
  const bytes = Buffer.from([0xe4, 0xf6, 0xfc, 0xff, 0x00])
  const type = 'text/plain; charset=iso-8859-1'
  await ask('open/latin', { method: 'POST', body: bytes, headers: { 'content-type': type } })
  const seen = server.seen.find(({ url }) => url.endsWith('/latin'))
  assert.equal(seen?.headers['content-type'], type)
  assert.equal(seen.headers['content-length'], '5')
})

test('no request is sent twice, whatever its outcome', async () => {
  for (const [name, peer, status, code] of [
    ['resetting', resetting, 502, 'BW_UPSTREAM_DISCONNECTED'],
    ['strange', strange, 502, 'BW_BAD_REPLY'],
  ] as const) {
    for (const method of ['GET', 'POST', 'DELETE']) {
      const before = peer.requests.length
      const response = await ask(`${name}/x`, { method })
      assert.equal(response.status, status)
      const error = await errorOf(response)
      assert.deepEqual([error.code, error.sent], [code, true])
      assert.equal(peer.requests.length, before + 1, `${method} ${name}`)
    }
  }
  const before = busy.requests.length
  const response = await ask('busy/x')
  assert.deepEqual([response.status, await response.text()], [503, 'busy'])
  assert.equal(busy.requests.length, before + 1)
})

test('a server that is not there, or says nothing, is an error of the gateway', async () => {
  const gone = await ask('gone/x', { method: 'POST', body: 'x' })
  assert.equal(gone.status, 502)
  const error = await errorOf(gone)
  assert.deepEqual([error.code, error.sent], ['BW_UPSTREAM_UNAVAILABLE', false])
  const quiet = await ask('silent/x')
  assert.deepEqual([quiet.status, (await errorOf(quiet)).code], [504, 'BW_ATTEMPT_TIMEOUT'])
})

test('a reply that breaks off, or has a status that HTTP does not know, is an error of the server', async () => {
  const broken = await ask('torn/x')
  const end = await broken.text().then(
    (text) => `${broken.status} ${text}`,
    () => 'cut off',
  )
  assert.match(end, /^cut off$|^502 .*BW_UPSTREAM_DISCONNECTED/)
  const odd = await ask('odd/x')
  assert.deepEqual([odd.status, (await errorOf(odd)).code], [502, 'BW_BAD_REPLY'])
})

test('the deadline ends an exchange, begun or not', async () => {
  const slow = await ask('slow/x')
  assert.equal(slow.status, 504)
  const { error, code } = await errorOf(slow)
  assert.match(String(error), /deadline of 300ms/)
  assert.equal(code, 'BW_DEADLINE_EXCEEDED')
  await assert.rejects(async () => (await ask('trickling/x')).text())
  await until('the servers’ connections are closed', () => trickling.sockets.size === 0)
})

test('the deadline ends a wait for a connection, and says that nothing was sent', async () => {
  const waited = await ask('unconnected/x', { method: 'POST', body: 'x' })
  assert.equal(waited.status, 504)
  const { code, sent } = await errorOf(waited)
  assert.deepEqual([code, sent], ['BW_DEADLINE_EXCEEDED', false])
  const begun = await errorOf(await ask('slow/x'))
  assert.equal(begun.sent, true)
})

test('a client that gives up frees its slot and the server; a client without a slot gets an error', async () => {
  const stop = new AbortController()
  const before = silent.requests.length
  const waiting = Array.from({ length: 4 }, () =>
    ask('slow/held', { signal: stop.signal }).catch(() => undefined),
  )
  await until('all requests are under way', () => silent.requests.length >= before + 4)
  const refused = await ask('open/x')
  assert.equal(refused.status, 503)
  assert.equal(refused.headers.get('retry-after'), '1')
  assert.match(String((await errorOf(refused)).error), /too many calls \(limit 4, gateway\.maxInFlight\)/)
  stop.abort()
  await Promise.all(waiting)
  await until('there is room again', async () => (await ask('open/x')).status === 200)
  await until('the server’s connection is closed', () => silent.sockets.size === 0)
})

test('redirections within the folder lead through the gateway, others are left alone', async () => {
  const location = async (to: string) => {
    const response = await ask(`open/redirect?to=${encodeURIComponent(to)}`, { redirect: 'manual' })
    await response.arrayBuffer()
    return response.headers.get('location')
  }
  const { origin } = new URL(server.url)
  assert.equal(await location('/base/other?q=1'), '/proxy/open/other?q=1')
  assert.equal(await location(`${origin}/base/other`), '/proxy/open/other')
  assert.equal(await location('sibling'), '/proxy/open/sibling')
  assert.equal(await location('https://example.com/x'), 'https://example.com/x')
  assert.equal(await location('/elsewhere'), '/elsewhere')
})

test('pages of other sites reach nothing of the data plane, even where a browser sends no origin', async () => {
  for (const path of ['/proxy/open/x', '/readyz', '/mcp', '/mcp/open']) {
    for (const site of ['cross-site', 'same-site']) {
      const { status, body } = await get(path, `sec-fetch-site: ${site}`, 'accept: text/event-stream')
      assert.equal(status, 403, `${path} ${site}`)
      assert.match(body, /without an Origin header/, 'no setting would help')
    }
  }
  for (const site of ['none', 'same-origin'])
    assert.equal((await get('/proxy/open/x', `sec-fetch-site: ${site}`)).status, 200, site)
  // An allowed page names its origin.
  const page = ['sec-fetch-site: cross-site', 'origin: http://localhost:3000']
  assert.equal((await get('/proxy/open/x', ...page)).status, 200)
})

test('errors hold no secret, and none is an internal error', () => {
  const said = gateway.program.lines.join('\n')
  assert.doesNotMatch(said, /a bug in Breakwater|defect of the gateway/)
  assert.doesNotMatch(said, /user:word|configured/)
})
