import assert from 'node:assert/strict'
import { connect } from 'node:net'
import fc from 'fast-check'
import { cleanUp, Gateway } from '../e2e/support/gateway.ts'
import { headersOf, metaOf } from '../e2e/support/modern-client.ts'
import { RawClient } from '../e2e/support/raw-client.ts'
import { stdioToolbox } from '../e2e/support/toolbox.ts'
import { until } from '../support/until.ts'
import { asyncTarget, type Target } from './target.ts'

/** Limit for answering every request, and for closing every connection whose other end has gone, in milliseconds. */
const BOUND_MS = 15_000

/** Wait before this side hangs up on a possibly incomplete request, in milliseconds. */
const PATIENCE_MS = 50

/** Exchanges of one case, all at the same time. */
const AT_ONCE = 64

/** Messages of an agent before damage. */
const messages: readonly object[] = [
  {
    method: 'tools/call',
    params: { name: 'local__echo', arguments: { text: 'x' }, _meta: { progressToken: 1 } },
  },
  { method: 'tools/call', params: { name: 'echo', arguments: { text: 'x' } } },
  { method: 'tools/list', params: { cursor: 'a' } },
  { method: 'resources/read', params: { uri: 'breakwater://local/a:b' } },
  { method: 'resources/subscribe', params: { uri: 'a:b' } },
  { method: 'completion/complete', params: { ref: { type: 'ref/prompt', name: 'x' }, argument: {} } },
  { method: 'logging/setLevel', params: { level: 'debug' } },
  { method: 'ping' },
  { method: 'tools/call', params: { name: 'local__echo', arguments: {}, _meta: metaOf() } },
  { method: 'server/discover', params: { _meta: metaOf() } },
]

/** Values of unexpected types. */
const odd = fc.oneof(
  fc.constantFrom('null', '{}', '[]', '""', '-0', '1e400', 'true', '"\\ud800"', '"x"', '[[[[1]]]]'),
  fc.constantFrom(
    '{"__proto__":{"x":1}}',
    '{"constructor":1}',
    '{"length":-1}',
    '"\\u0000\\r\\n"',
    '{"toString":1}',
  ),
)

/** A text with a value or a character replaced. */
const bent = fc
  .tuple(
    fc.constantFrom(...messages),
    fc.nat(),
    fc.option(odd, { freq: 4 }),
    fc.nat(),
    fc.string({ maxLength: 2 }),
  )
  .map(([message, which, put, at, text]) => {
    const json = JSON.stringify({ jsonrpc: '2.0', id: 1, ...message })
    if (put === null) {
      const place = at % json.length
      return json.slice(0, place) + text + json.slice(place + text.length)
    }
    const values = [...json.matchAll(/(?<=:)("[^"]*"|\d+|\{\}|\{"[^{}]*\})/g)]
    const { index = 0, 0: old = '' } = values[which % values.length] ?? {}
    return json.slice(0, index) + put + json.slice(index + old.length)
  })

/** Header lines that are unnecessary and may contradict the head. */
const headerLine = fc.constantFrom(
  ...['Transfer-Encoding: chunked', 'Transfer-Encoding: gzip', 'Content-Length: 5', 'Content-Length: -1'],
  ...['Content-Length: 99999999999', 'Expect: 100-continue', 'Upgrade: websocket', 'Connection: close'],
  ...[
    'Content-Type: text/plain',
    'Accept: text/html',
    'Mcp-Session-Id: nobody',
    'Origin: https://evil.example',
  ],
  ...['Mcp-Protocol-Version: 2026-07-28', 'Mcp-Method: =?base64?//8=?=', 'Host: evil.example', ': x', 'X'],
  ...['Last-Event-ID: 1-1', `X-Long: ${'x'.repeat(20_000)}`, 'Content-Encoding: gzip', 'X-Bytes: \xff\xfe'],
)

interface Exchange {
  /** Whether the request is complete, whatever its body: complete requests must get an answer. */
  readonly whole: boolean
  readonly verb: string
  readonly path: string
  readonly body: string
  readonly more: readonly string[]
  /** Where the bytes are changed, cut off or doubled; unused for a complete request. */
  readonly at: number
  readonly put: string
  readonly end: 'wait' | 'cut' | 'reset'
}

const exchange: fc.Arbitrary<Exchange> = fc.record({
  whole: fc.boolean(),
  verb: fc.constantFrom('POST', 'POST', 'POST', 'GET', 'DELETE', 'PUT', 'OPTIONS', 'CONNECT', 'P\0ST'),
  path: fc.constantFrom('/mcp', '/mcp/local', '/mcp/%00', '/mcp/nobody', '//', 'http://x/mcp', '/mcp?a=%'),
  body: bent,
  more: fc.array(headerLine, { maxLength: 3 }),
  at: fc.nat(),
  put: fc.constantFrom('', '\r\n\r\n', '\0', '\r', ':', '0\r\n\r\n', 'FFFFFFFFF\r\n', '\xff\xff'),
  end: fc.constantFrom('wait' as const, 'cut' as const, 'reset' as const),
})

function bytesOf({ whole, verb, path, body, more, at, put, end }: Exchange, client: RawClient): Buffer {
  const usual = {
    Host: '127.0.0.1',
    Accept: 'application/json, text/event-stream',
    'Content-Type': 'application/json',
    'Content-Length': String(Buffer.byteLength(body)),
    ...(body.includes('io.modelcontextprotocol/') ? headersOfText(body) : client.headers),
  }
  const lines = [...Object.entries(usual).map(([name, value]) => `${name}: ${value}`), ...(whole ? [] : more)]
  const head = `${whole ? 'POST' : verb} ${whole ? '/mcp' : path} HTTP/1.1\r\n${lines.join('\r\n')}\r\n\r\n`
  const bytes = Buffer.concat([Buffer.from(head, 'latin1'), Buffer.from(body)])
  if (whole) return bytes
  const place = at % bytes.length
  if (end === 'cut') return bytes.subarray(0, place)
  return Buffer.concat([bytes.subarray(0, place), Buffer.from(put, 'latin1'), bytes.subarray(place)])
}

function headersOfText(body: string): Readonly<Record<string, string>> {
  try {
    return headersOf(JSON.parse(body) as Parameters<typeof headersOf>[0])
  } catch {
    return { 'mcp-protocol-version': '2026-07-28' }
  }
}

/** Sends the bytes. Resolves after an answer or when the connection has closed; rejects past the bound. */
function play(given: Exchange, client: RawClient): Promise<void> {
  const { hostname, port } = new URL(client.url)
  return new Promise((resolve, reject) => {
    const socket = connect(Number(port), hostname)
    const bound = setTimeout(() => {
      socket.destroy()
      reject(new Error(`neither answered nor closed within ${BOUND_MS} ms`))
    }, BOUND_MS)
    const hangUp = setTimeout(() => (given.whole ? undefined : socket.end()), PATIENCE_MS)
    const done = () => {
      clearTimeout(bound)
      clearTimeout(hangUp)
      socket.destroy()
      resolve()
    }
    socket.on('error', done)
    socket.on('close', done)
    socket.on('data', done)
    socket.write(bytesOf(given, client), () => {
      if (!given.whole && given.end === 'reset') {
        socket.resetAndDestroy()
        done()
      }
    })
  })
}

interface Stage {
  readonly gateway: Gateway
  readonly bystander: RawClient
}

let stage: Promise<Stage> | undefined

async function begin(): Promise<Stage> {
  const gateway = await Gateway.start({
    gateway: { maxInFlight: 200 },
    servers: { local: stdioToolbox(), other: stdioToolbox() },
  })
  await gateway.waitFor('up', 'local', 'other')
  return { gateway, bystander: await RawClient.open(gateway.mcp('other')) }
}

const inputs = asyncTarget(
  'whatever bytes agents send, each is answered or its connection closes, and everybody else is served',
  fc.array(exchange, { minLength: AT_ONCE, maxLength: AT_ONCE }),
  async (exchanges) => {
    const { gateway, bystander } = await (stage ??= begin())
    const agent = await RawClient.open(gateway.mcp())
    await Promise.all(exchanges.map((given) => play(given, agent)))
    await agent.leave()
    assert.ok(gateway.program.isRunning, 'the gateway lives')
    assert.equal((await fetch(`${gateway.data}/readyz`)).status, 200)
    assert.equal(await bystander.say('echo', { text: 'served' }), 'served')
    const underWay = () => gateway.sums('breakwater_inflight', 'server', '')
    await until('no call is under way', async () => Object.keys(await underWay()).length === 0, BOUND_MS)
  },
  4,
)

/** A running gateway fed with bytes by raw sockets. Each case sends many requests at once. */
export const edgeTarget: Target = {
  ...inputs,
  inputs: AT_ONCE,
  async close() {
    stage = undefined
    await cleanUp()
  },
}
