import assert from 'node:assert/strict'
import { once } from 'node:events'
import { connect, type Socket } from 'node:net'
import { after, before, test } from 'node:test'
import { cleanUp, Gateway, type Json } from '../e2e/support/gateway.ts'
import { RawClient } from '../e2e/support/raw-client.ts'
import { closeServers, RawServer, sendJson } from '../e2e/support/raw-server.ts'
import { nextTurn } from '../../src/mesh/clock.ts'
import { pick, seeded } from '../support/random.ts'
import { until } from '../support/until.ts'

/*
 * Pipelined requests, several in one turn of the event loop, sent before earlier replies. Whatever path each request
 * takes, and whenever its server answers, the replies come whole and in order.
 */

const SEED = Number(process.env.SEED ?? 1)
const CONNECTIONS = 40

/** Delay of a late answer, in turns of the event loop. */
const LATE = 20

async function turns(count: number): Promise<void> {
  for (let turn = 0; turn < count; turn++) await nextTurn()
}

const accept = 'application/json, text/event-stream'

let gateway: Gateway

before(async () => {
  const server = await RawServer.start(
    ({ message: { id, method, params } }, response) => {
      if (method !== 'tools/call') return false
      const { arguments: given } = params as { arguments: { streams?: boolean; late?: boolean } }
      const answer = JSON.stringify({ jsonrpc: '2.0', id, result: { content: [] } })
      const told = { progressToken: id, progress: 1 }
      const notification = { jsonrpc: '2.0', method: 'notifications/progress', params: told }
      if (given.streams === true) {
        response.writeHead(200, { 'content-type': 'text/event-stream' })
        response.write(`data: ${JSON.stringify(notification)}\n\n`)
      }
      const say = () =>
        given.streams === true ? void response.end(`data: ${answer}\n\n`) : sendJson(response, answer)
      if (given.late === true) void turns(LATE).then(say)
      else say()
      return true
    },
    ['any'],
  )
  gateway = await Gateway.start({ servers: { one: { url: server.url, era: 'legacy' } } })
  await gateway.waitFor('up', 'one')
})
after(async () => {
  await cleanUp()
  closeServers()
})

interface Reply {
  readonly status: number
  readonly body: string
}

/** Returns the complete replies. */
function repliesIn(bytes: Buffer): Reply[] {
  const replies: Reply[] = []
  for (let at = 0; ;) {
    const end = bytes.indexOf('\r\n\r\n', at)
    if (end === -1) return replies
    const head = bytes.toString('latin1', at, end)
    const status = Number(/^HTTP\/1\.1 (\d+)/.exec(head)?.[1])
    const length = /content-length: (\d+)/i.exec(head)?.[1]
    let body = ''
    at = end + 4
    if (length !== undefined) {
      body = bytes.toString('utf8', at, at + Number(length))
      at += Number(length)
    } else if (/transfer-encoding: chunked/i.test(head)) {
      for (let size = -1; size !== 0;) {
        const line = bytes.indexOf('\r\n', at)
        if (line === -1) return replies
        size = parseInt(bytes.toString('latin1', at, line), 16)
        body += bytes.toString('utf8', line + 2, line + 2 + size)
        at = line + 2 + size + 2
      }
    }
    if (at > bytes.length) return replies
    replies.push({ status, body })
  }
}

class Connection {
  readonly socket: Socket
  bytes = Buffer.alloc(0)

  private constructor(socket: Socket) {
    this.socket = socket.on('data', (chunk: Buffer) => (this.bytes = Buffer.concat([this.bytes, chunk])))
  }

  static async open(to: Gateway = gateway): Promise<Connection> {
    const { hostname, port } = new URL(to.mcp())
    const socket = connect(Number(port), hostname).setNoDelay()
    await once(socket, 'connect')
    return new Connection(socket)
  }

  async replies(count: number): Promise<Reply[]> {
    await until(`${count} replies have come`, () => repliesIn(this.bytes).length >= count)
    this.socket.destroy()
    return repliesIn(this.bytes)
  }
}

function requestOf(line: string, headers: Readonly<Record<string, string>>, ...body: string[]): string {
  const all = { host: '127.0.0.1', accept, 'content-type': 'application/json', ...headers }
  const lines = Object.entries(all).map(([name, value]) => `${name}: ${value}\r\n`)
  return `${line} HTTP/1.1\r\n${lines.join('')}\r\n${body.join('')}`
}

const chunk = (text: string) => `${text.length.toString(16)}\r\n${text}\r\n`

/** Returns a POST with a content length, or in chunks. */
function postOf(path: string, headers: Readonly<Record<string, string>>, body: Json, cut?: number): string {
  const text = JSON.stringify(body)
  if (cut === undefined)
    return requestOf(`POST ${path}`, { ...headers, 'content-length': String(text.length) }, text)
  const chunks = [chunk(text.slice(0, cut)), chunk(text.slice(cut)), '0\r\n\r\n']
  return requestOf(`POST ${path}`, { ...headers, 'transfer-encoding': 'chunked' }, ...chunks)
}

test('replies to pipelined requests come whole and in order, however the requests are cut', async () => {
  const random = seeded(SEED)
  const below = (limit: number) => Math.floor(random() * limit)
  for (let nth = 0; nth < CONNECTIONS; nth++) {
    const { headers } = await RawClient.open(gateway.mcp('one'))
    const expected: (readonly [status: number, id?: string])[] = []
    const requests = Array.from({ length: 2 + below(12) }, (_, index) => {
      const id = `${nth}-${index}`
      const cut = random() < 0.3 ? 1 + below(40) : undefined
      const call = (given: Json) => ({
        jsonrpc: '2.0',
        id,
        method: 'tools/call',
        params: { name: 'any', arguments: given, _meta: { progressToken: id } },
      })
      const kinds = {
        json: () => [200, id, postOf('/mcp/one', headers, call({}), cut)],
        late: () => [200, id, postOf('/mcp/one', headers, call({ late: true }), cut)],
        stream: () => [200, id, postOf('/mcp/one', headers, call({ streams: true }), cut)],
        ping: () => [200, id, postOf('/mcp/one', headers, { jsonrpc: '2.0', id, method: 'ping' }, cut)],
        told: () => [
          202,
          undefined,
          postOf('/mcp/one', headers, { jsonrpc: '2.0', method: 'notifications/initialized' }, cut),
        ],
        nobody: () => [404, undefined, postOf('/mcp/nobody', headers, call({}), cut)],
        get: () => [406, undefined, requestOf('GET /mcp/one', { ...headers, accept: 'text/plain' })],
        leave: () => [404, undefined, requestOf('DELETE /mcp/one', { ...headers, 'mcp-session-id': 'none' })],
      } satisfies Record<string, () => [number, string | undefined, string]>
      const [status, ofCall, text] = kinds[pick(random, Object.keys(kinds) as (keyof typeof kinds)[])]()
      expected.push(ofCall === undefined ? [status] : [status, ofCall])
      return text
    })
    const all = requests.join('')
    const connection = await Connection.open()
    const most = pick(random, [30, 2_000, all.length])
    for (let at = 0; at < all.length;) {
      const size = most === all.length ? most : 1 + below(most)
      connection.socket.write(all.slice(at, (at += size)))
      if (random() < 0.3) await nextTurn()
    }
    const replies = await connection.replies(expected.length)
    assert.deepEqual(
      replies.map(({ status, body }, index) => {
        const id = expected[index]?.[1]
        return id !== undefined && body.includes(`"id":"${id}"`) ? [status, id] : [status]
      }),
      expected,
    )
  }
})

test('a client that pipelines a call and the end of its session hears that the session has ended, not that it is unknown', async () => {
  const { headers } = await RawClient.open(gateway.mcp('one'))
  const call = { jsonrpc: '2.0', id: 'cut', method: 'tools/call', params: { name: 'any', arguments: {} } }
  const connection = await Connection.open()
  connection.socket.write(postOf('/mcp/one', headers, call) + requestOf('DELETE /mcp/one', headers))
  const [called, left] = await connection.replies(2)
  assert.equal(called?.status, 200)
  assert.match(called.body, /"id":"cut","error".*the session ended/)
  assert.equal(left?.status, 204)
})

test('calls queued behind another call of their connection are answered when the gateway stops meanwhile', async () => {
  const held: (() => void)[] = []
  const server = await RawServer.start(
    ({ message: { id, method } }, response) => {
      if (method !== 'tools/call') return false
      const answer = JSON.stringify({ jsonrpc: '2.0', id, result: { content: [] } })
      held.push(() => sendJson(response, answer))
      return true
    },
    ['any'],
  )
  const ending = await Gateway.start({ servers: { one: { url: server.url, era: 'legacy' } } })
  await ending.waitFor('up', 'one')
  const { headers } = await RawClient.open(ending.mcp('one'))
  const connection = await Connection.open(ending)
  for (const id of ['a', 'b', 'c']) {
    const call = { jsonrpc: '2.0', id, method: 'tools/call', params: { name: 'any', arguments: {} } }
    connection.socket.write(postOf('/mcp/one', headers, call))
  }
  await until('all calls run', () => held.length === 3)
  ending.program.signal('SIGTERM')
  const { hostname, port } = new URL(ending.mcp())
  await until('the gateway accepts no more connections', async () => {
    const socket = connect(Number(port), hostname)
    return once(
      socket.once('connect', () => socket.destroy()),
      'close',
    ).then(
      () => false,
      () => true,
    )
  })
  for (const answer of held) answer()
  const replies = await connection.replies(3)
  assert.deepEqual(
    replies.map(({ status, body }) => [status, (JSON.parse(body) as Json).id]),
    [
      [200, 'a'],
      [200, 'b'],
      [200, 'c'],
    ],
  )
  assert.deepEqual(await ending.program.ended, { code: 0, signal: null })
})
