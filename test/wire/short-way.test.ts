import assert from 'node:assert/strict'
import { connect } from 'node:net'
import { after, before, test } from 'node:test'
import { setTimeout } from 'node:timers/promises'
import { cleanUp, Gateway, type Json } from '../e2e/support/gateway.ts'
import { metaOf } from '../e2e/support/modern-client.ts'
import { RawClient } from '../e2e/support/raw-client.ts'
import { closeServers, RawServer, sendJson } from '../e2e/support/raw-server.ts'
import { pick, seeded } from '../support/random.ts'

/** Requests per path, and how many of them are concurrent. */
const REQUESTS = Number(process.env.REQUESTS ?? 1_000)
const AT_A_TIME = 24
const SEED = Number(process.env.SEED ?? 1)

/** After this time in milliseconds, a missing reply never comes, for instance after a truncated body. */
const PATIENCE_MS = 500

/**
 * Content types for the fast path, and with the same meaning for the slow path: the only difference between the two.
 */
const types = { short: 'application/json', long: 'Application/Json' } as const

type Way = keyof typeof types

after(async () => {
  await cleanUp()
  closeServers()
})

interface Side {
  readonly gateway: Gateway
  /** One session per concurrent request: two requests with the same id would collide. */
  readonly sessions: readonly string[]
}

const sides = {} as Record<Way, Side>

before(async () => {
  const server = await RawServer.start(
    ({ message: { id, method } }, response) => {
      if (method !== 'tools/call') return false
      sendJson(response, JSON.stringify({ jsonrpc: '2.0', id, result: { content: [] } }))
      return true
    },
    ['any'],
  )
  for (const way of ['short', 'long'] as const) {
    const gateway = await Gateway.start({
      servers: { one: { url: server.url, era: 'legacy' } },
      gateway: {
        maxBody: '100KiB',
        allowedHosts: ['gateway.example'],
        limits: { perSession: false, perTenant: false },
      },
    })
    await gateway.waitFor('up', 'one')
    const clients = await Promise.all(Array.from({ length: AT_A_TIME }, () => RawClient.open(gateway.mcp())))
    sides[way] = { gateway, sessions: clients.map(({ session }) => session) }
  }
})

/** A request without the parts specific to a gateway: its session, its address, and its content type. */
interface Sent {
  readonly head: string
  readonly body: Buffer
  /** Offset at which the request is cut in two. */
  readonly cut: number
}

const ping = { jsonrpc: '2.0', id: 1, method: 'ping' }
const call = { jsonrpc: '2.0', id: 2, method: 'tools/call', params: { name: 'one__any', arguments: {} } }
const calling = Buffer.from(JSON.stringify(call))
const initialize = {
  jsonrpc: '2.0',
  id: 3,
  method: 'initialize',
  params: { protocolVersion: '2025-11-25', capabilities: {}, clientInfo: { name: 'c', version: '1' } },
}

const bodies: readonly Buffer[] = [
  ...[ping, call, { jsonrpc: '2.0', method: 'notifications/initialized' }, [ping], [], {}, null, 'x'],
  { ...ping, id: undefined },
  { ...call, params: { name: 'nobody' } },
  { jsonrpc: '2.0', id: 4, method: 'tools/list', params: { _meta: metaOf() } },
  { jsonrpc: '2.0', id: 5, method: 'tools/list' },
  { ...ping, params: { x: 'ü\u{1f600}'.repeat(500) } },
  { ...ping, params: { x: 'x'.repeat(70_000) } },
  { ...ping, params: { x: 'x'.repeat(120_000) } },
  initialize,
]
  .map((value: unknown) => Buffer.from(JSON.stringify(value)))
  .concat(
    ['', ' ', '{', '{"a":1}{"b":2}', `${JSON.stringify(ping)}\r\n`, `\ufeff${JSON.stringify(ping)}`].map(
      (text) => Buffer.from(text),
    ),
    [
      Buffer.from(`${'['.repeat(2_000)}${']'.repeat(2_000)}`),
      Buffer.from([0x22, 0xc3, 0x28, 0x22]),
      Buffer.from([0xff, 0xfe, 0x7b, 0x00]),
      Buffer.from('{"jsonrpc":"2.0","id":1,"method":"ping","__proto__":{"x":1}}'),
    ],
  )

const targets = [
  ...[
    '/mcp',
    '/mcp',
    '/mcp/one',
    '/mcp/one',
    '/mcp/nobody',
    '/mcp/',
    '/mcp/one/',
    '//mcp',
    '/mcp//one',
    '/MCP',
    '/mcp?x=1',
  ],
  ...[
    '/mcp/o%6ee',
    '/mcp/%2e%2e',
    '/mcp/..',
    '/mcp/../mcp',
    '/mcp/.',
    '/mcp/__proto__',
    '/mcp/constructor',
    '/mcp/one;x',
  ],
  ...[
    '/mcp/one#x',
    '/mcp#',
    '/mcp/one/two',
    'http://evil.example/mcp',
    'http://evil.example/mcp/one',
    '*',
    'mcp',
  ],
  ...[
    '/mcp/%',
    '/mcp/%00',
    `/mcp/${'x'.repeat(200)}`,
    `/mcp/${'x'.repeat(40)}`,
    '/mcp\\one',
    '/proxy/one',
    '/livez',
    '/',
  ],
]

const methods = [...Array<string>(12).fill('POST'), 'post', 'PUT', 'PATCH', 'OPTIONS', 'QUERY', 'CONNECT']

/** Possible values of each header; undefined omits the header. The first value is the usual one. */
const headers: Readonly<Record<string, readonly (string | undefined)[]>> = {
  host: [
    '{ADDRESS}',
    'localhost',
    'gateway.example',
    'evil.example',
    undefined,
    '',
    'GATEWAY.example:1',
    '127.0.0.1.evil.example',
    'a b',
    '[::1]',
    '{ADDRESS}\r\nhost: evil.example',
    'evil.example\r\nhost: {ADDRESS}',
    '127.1',
    '0x7f.1',
  ],
  origin: [
    undefined,
    'https://evil.example',
    'null',
    '',
    'http://localhost:3000',
    'http://localhost\r\norigin: https://evil.example',
  ],
  'sec-fetch-site': [
    undefined,
    'cross-site',
    'same-site',
    'same-origin',
    'none',
    'same-origin\r\nsec-fetch-site: cross-site',
  ],
  accept: [
    'application/json, text/event-stream',
    undefined,
    '*/*',
    'application/json',
    '',
    'text/html',
    'text/event-stream\r\naccept: application/json',
    'APPLICATION/JSON, text/event-stream',
  ],
  'content-type': [
    '{TYPE}',
    '{TYPE}',
    '{TYPE}',
    '{TYPE}\r\ncontent-type: text/plain',
    'text/plain\r\ncontent-type: {TYPE}',
    undefined,
    ' {TYPE} \t',
  ],
  connection: [
    undefined,
    'keep-alive',
    'close',
    'upgrade\r\nupgrade: websocket',
    'Upgrade, HTTP2-Settings\r\nupgrade: h2c',
    'content-length',
    'keep-alive\r\nconnection: close',
  ],
  expect: [undefined, '100-continue', '100-Continue', 'x'],
  'mcp-session-id': ['{SESSION}', undefined, 'nobody', '', '{SESSION}\r\nmcp-session-id: {SESSION}'],
  'mcp-protocol-version': [
    '2025-11-25',
    undefined,
    '2026-07-28',
    '1999-01-01',
    '',
    '2025-11-25\r\nmcp-protocol-version: 2025-11-25',
    '__proto__',
  ],
  'mcp-method': [undefined, 'ping', 'tools/list'],
  'x-breakwater-tenant': [undefined, 'a', '\u00ff', 'x'.repeat(300)],
  'accept-version': [undefined, '1.x', ''],
  'accept-encoding': [undefined, 'gzip'],
  'content-encoding': [undefined, 'gzip', 'identity'],
  'x-request-id': [undefined, 'abc'],
  'request-id': [undefined, 'abc'],
  'x-http-method-override': [undefined, 'DELETE'],
  'x-forwarded-host': [undefined, 'evil.example'],
  authorization: [undefined, 'Bearer x'],
  prefer: [undefined, 'wait=1'],
  __proto__x: [undefined, 'x'],
  'x-long': [undefined, 'x'.repeat(15_000), 'x'.repeat(17_000)],
}

const lengths: readonly ((length: number) => string | undefined)[] = [
  ...Array<(length: number) => string>(8).fill(String),
  (length) => `+${length}`,
  (length) => `0${length}`,
  (length) => `0x${length.toString(16)}`,
  (length) => `${length}.0`,
  (length) => `-${length}`,
  (length) => `${length}\r\ncontent-length: ${length}`,
  (length) => `${length}, ${length}`,
  (length) => `${length}\r\ntransfer-encoding: chunked`,
  (length) => String(length + 5),
  (length) => String(Math.max(0, length - 5)),
  () => '1e3',
  () => '0',
  () => '',
  () => '1'.repeat(30),
  () => '99999999999',
  () => '200000',
  () => '4294967296',
  () => undefined,
]

/** Returns the nth request: mostly usual values, so oddities occur alone and in combination. */
function request(random: () => number, n: number): Sent {
  const oddity = pick(random, [0.02, 0.1, 0.3])
  const odd = <T>(from: readonly [T, ...T[]] | readonly T[]): T =>
    random() < oddity ? pick(random, from) : from[0]
  const usual = random() < 0.4 ? (bodies[Math.floor(random() * 2)] as Buffer) : pick(random, bodies)
  // An abandoned call may still run, and no other call of its session can have its id.
  const body = usual.equals(calling) ? Buffer.from(JSON.stringify({ ...call, id: 1_000 + n })) : usual
  const lines = Object.entries(headers).flatMap(([name, values]) => {
    const value = odd(values)
    return value === undefined ? [] : [`${odd([name, name.toUpperCase()])}: ${value}\r\n`]
  })
  const isChunked = random() < 0.05
  const length = isChunked ? undefined : odd(lengths)(body.length)
  if (length !== undefined)
    lines.splice(Math.floor(random() * lines.length), 0, `content-length: ${length}\r\n`)
  if (isChunked) lines.push('transfer-encoding: chunked\r\n')
  const target = random() < 0.6 ? '/mcp' : pick(random, targets)
  const head = `${odd(methods)} ${target} ${odd(['HTTP/1.1', 'HTTP/1.0', 'HTTP/1.2', 'http/1.1'])}\r\n${lines.join('')}\r\n`
  const sent = isChunked
    ? Buffer.from(`${body.length.toString(16)}\r\n${body.toString('latin1')}\r\n0\r\n\r\n`, 'latin1')
    : body
  return { head, body: sent, cut: random() < 0.5 ? 0 : random() }
}

const NEXT = 'GET /livez HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n'

interface Reply {
  text: string
  isClosed: boolean
  /** The connection was closed with unread bytes: the end of the reply may be lost. */
  isReset: boolean
}

/** Sends a request, followed by another request that closes the connection. */
async function send({ head, body, cut }: Sent, way: Way, worker: number): Promise<Reply & { close(): void }> {
  const { gateway, sessions } = sides[way]
  const session = sessions[worker] as string
  const { host, hostname, port } = new URL(gateway.mcp())
  const filled = head
    .replaceAll('{ADDRESS}', host)
    .replaceAll('{SESSION}', session)
    .replaceAll('{TYPE}', types[way])
  const bytes = Buffer.concat([Buffer.from(filled, 'latin1'), body, Buffer.from(NEXT)])
  const at = Math.floor(cut * bytes.length)
  const socket = connect({ port: Number(port), host: hostname, noDelay: true })
  const reply = { text: '', isClosed: false, isReset: false, close: () => void socket.destroy() }
  socket.on('data', (chunk: Buffer) => (reply.text += chunk.toString('latin1')))
  socket.on('error', () => (reply.isReset = true))
  socket.once('close', () => (reply.isClosed = true))
  if (at > 0) {
    socket.write(bytes.subarray(0, at))
    await setTimeout(2)
  }
  socket.write(bytes.subarray(at))
  return reply
}

/** Returns the whole reply without parts that differ each time. */
function seen({ text, isClosed }: Reply): string {
  return `${text}<${isClosed ? 'closed' : 'open'}>`
    .replaceAll(/(mcp-session-id: )[\w-]+/g, '$1ONE')
    .replaceAll(/(date: )[^\r]+/gi, '$1NOW')
}

function areAlike(short: Reply, long: Reply): boolean {
  const [one, other] = [seen(short), seen(long)]
  if (one === other) return true
  if (!short.isReset && !long.isReset) return false
  return short.text.startsWith(long.text) || long.text.startsWith(short.text)
}

/** Returns the replies on both paths, once nothing more comes. */
async function bothWays(sent: Sent, worker: number): Promise<{ short: string; long: string }> {
  const [short, long] = await Promise.all([send(sent, 'short', worker), send(sent, 'long', worker)])
  const since = performance.now()
  const passed = () => performance.now() - since
  while (!(short.isClosed && long.isClosed) && passed() < PATIENCE_MS) await setTimeout(2)
  // On a busy machine one path may need more time than the other.
  while (!areAlike(short, long) && passed() < 10 * PATIENCE_MS) await setTimeout(2)
  short.close()
  long.close()
  return { short: seen(short), long: areAlike(short, long) ? seen(short) : seen(long) }
}

/** Returns a gateway's counters of request outcomes. */
async function counters({ gateway }: Side): Promise<string[]> {
  const text = await (await fetch(`${gateway.control}/metrics`)).text()
  return text
    .split('\n')
    .filter((line) => /^breakwater_\w+_(total|count)[{ ]/.test(line))
    .filter((line) => !/probe|upstream_sessions|stall|health/.test(line))
}

test('a request on the fast path around Fastify gets the same bytes and counts as a request through Fastify', async () => {
  const random = seeded(SEED)
  const all = Array.from({ length: REQUESTS }, (_, n) => request(random, n))
  const wrong: Json[] = []
  const statuses = new Set<string>()
  let next = 0
  const work = async (worker: number) => {
    for (let n = next++; n < all.length; n = next++) {
      const sent = all[n] as Sent
      const { short, long } = await bothWays(sent, worker)
      statuses.add(short.slice('HTTP/1.1 '.length, 'HTTP/1.1 200'.length))
      const body = sent.body.subarray(0, 100).toString('latin1')
      if (short !== long) wrong.push({ n, head: sent.head.slice(0, 2_000), body, short, long })
    }
  }
  await Promise.all(Array.from({ length: AT_A_TIME }, (_, worker) => work(worker)))
  assert.deepEqual(wrong, [], `seed ${SEED}`)
  for (const status of ['200', '202', '400', '403', '404', '406', '413', '415', '417'])
    assert.ok(statuses.has(status), `no request was answered with ${status}`)
  assert.deepEqual(await counters(sides.short), await counters(sides.long))
})
