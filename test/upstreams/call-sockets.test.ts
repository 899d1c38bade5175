import assert from 'node:assert/strict'
import { once } from 'node:events'
import { type AddressInfo, createServer, type Socket } from 'node:net'
import { test, type TestContext } from 'node:test'
import { Pool } from 'undici'
import { nextTurn } from '../../src/mesh/clock.ts'
import { CallSockets } from '../../src/upstreams/http/call-sockets.ts'
import { type Calls, PooledCalls } from '../../src/upstreams/http/calls.ts'
import { gatewayError } from '../../src/mesh/errors.ts'
import { HttpReply } from '../../src/upstreams/http/http-reply.ts'
import { until } from '../support/until.ts'
import { recorder } from './posted.ts'

/** Reads whole requests from a socket, and passes each to `answer`. */
function serve(socket: Socket, answer: (request: string) => void): void {
  let text = ''
  socket.on('error', () => undefined).on('end', () => socket.end())
  socket.on('data', (bytes: Buffer) => {
    text += bytes.toString('latin1')
    for (;;) {
      const end = text.indexOf('\r\n\r\n')
      if (end === -1) return
      const length = Number(/content-length: (\d+)/.exec(text.slice(0, end))?.[1] ?? 0)
      if (text.length < end + 4 + length) return
      const request = text.slice(0, end + 4 + length)
      text = text.slice(request.length)
      answer(request)
    }
  })
}

const engines = {
  own: (origin: string, connections: number, timeout: number): Calls =>
    new CallSockets(origin, { connections, headersTimeout: timeout, bodyTimeout: timeout, connect: {} }),
  undici: (origin: string, connections: number, timeout: number): Calls =>
    new PooledCalls(new Pool(origin, { connections, headersTimeout: timeout, bodyTimeout: timeout })),
}

/** Starts a server and sockets for calls to it; `take` gets each connection. */
async function setUp(
  t: TestContext,
  take: (socket: Socket, number: number) => void,
  {
    connections = 4,
    timeout = 20_000,
    engine = 'own',
  }: { connections?: number; timeout?: number; engine?: keyof typeof engines } = {},
) {
  let count = 0
  const open = new Set<Socket>()
  const server = createServer({ noDelay: true, allowHalfOpen: true }, (socket) => {
    open.add(socket)
    socket.once('close', () => open.delete(socket))
    take(socket, ++count)
  }).listen(0, '127.0.0.1')
  await once(server, 'listening')
  const origin = `http://127.0.0.1:${(server.address() as AddressInfo).port}`
  const calls = engines[engine](origin, connections, timeout)
  t.after(async () => {
    await calls.destroy()
    for (const socket of open) socket.destroy()
    server.close()
  })
  return {
    calls,
    connections: () => count,
    call(body = '{}', headers: string[] = [], more?: string[]) {
      const recorded = recorder()
      const reply = new HttpReply(recorded.sink, { maxReply: 1_000_000 })
      calls.dispatch({ method: 'POST', path: '/mcp', headers, more, body }, reply)
      return { ...recorded, reply }
    },
  }
}

const JSON_200 = 'HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}'

/** Replies of servers, each to one request. `closes`: the server closes its side behind the reply. */
const replies: Readonly<Record<string, { raw: string; closes?: true }>> = {
  'a length': { raw: JSON_200 },
  'no reason': { raw: 'HTTP/1.1 200\r\nContent-Length: 2\r\n\r\n{}' },
  'names in any case, blanks before values': {
    raw: 'HTTP/1.1 200 OK\r\ncOnTeNt-TyPe: \t application/json\r\nCONTENT-LENGTH:2\r\n\r\n{}',
  },
  'Latin-1 in a value': { raw: 'HTTP/1.1 200 Gr\xfc\xdfe\r\nX-A: \xe9\r\nContent-Length: 2\r\n\r\n{}' },
  'no body': { raw: 'HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n' },
  '204 without a length': { raw: 'HTTP/1.1 204 No Content\r\n\r\n' },
  chunks: {
    raw: 'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n{\r\n00001;a="b"\r\n}\r\n0\r\n\r\n',
  },
  'chunks with trailers': {
    raw: 'HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\n\r\n2\r\n{}\r\n0\r\nX-Sum: 1\r\n\r\n',
  },
  events: {
    raw: 'HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n9\r\ndata: 1\n\n\r\n9\r\ndata: 2\n\n\r\n0\r\n\r\n',
  },
  'a body until the end': { raw: 'HTTP/1.1 200 OK\r\n\r\n{}', closes: true },
  'HTTP/1.0': { raw: 'HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\n{}', closes: true },
  'interim responses': { raw: `HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n${JSON_200}` },
  'an error': { raw: 'HTTP/1.1 503 Busy\r\nContent-Length: 4\r\nRetry-After: 1\r\n\r\nbusy' },
  'a body that is cut off': { raw: 'HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{}', closes: true },
  'chunks that are cut off': {
    raw: 'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n',
    closes: true,
  },
  'an upgrade': { raw: 'HTTP/1.1 101 Switching Protocols\r\nUpgrade: a\r\nConnection: upgrade\r\n\r\n' },
  nothing: { raw: '', closes: true },
}

for (const [name, { raw, closes = false }] of Object.entries(replies))
  for (const isWhole of [true, false])
    test(`both engines read the same from a server: ${name}, ${isWhole ? 'at once' : 'byte by byte'}`, async (t) => {
      const seen = []
      for (const engine of ['undici', 'own'] as const) {
        const { call } = await setUp(
          t,
          (socket) =>
            serve(socket, () => {
              void (async () => {
                for (const piece of isWhole ? [raw] : raw) {
                  socket.write(piece, 'latin1')
                  if (!isWhole) await nextTurn()
                }
                if (closes) socket.end()
              })()
            }),
          { engine },
        )
        const { end, last, told: events, reply } = call()
        await end
        const { error, status, body, headers } = last
        const named = ['content-type', 'retry-after', 'x-a'].map((header) => headers?.get(header))
        seen.push({ status, body, named, error, events, sent: reply.sent })
      }
      assert.deepEqual(seen[1], seen[0])
    })

for (const [name, raw] of Object.entries({
  'two lengths': 'HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\n{}',
  'two different lengths': 'HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{}',
  'a list of lengths': 'HTTP/1.1 200 OK\r\nContent-Length: 2, 2\r\n\r\n{}',
  'a signed length': 'HTTP/1.1 200 OK\r\nContent-Length: +2\r\n\r\n{}',
  'a length and chunks':
    'HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n',
  'another coding': 'HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n',
  'bare line feeds': 'HTTP/1.1 200 OK\nContent-Length: 2\n\n{}\r\n\r\n',
  'an interim response with a body':
    'HTTP/1.1 103 Early Hints\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}',
  'a folded value': 'HTTP/1.1 200 OK\r\nX-A: one\r\n two\r\nContent-Length: 2\r\n\r\n{}',
  'a blank before the colon': 'HTTP/1.1 200 OK\r\nContent-Length : 2\r\n\r\n{}',
  'a NUL': 'HTTP/1.1 200 OK\r\nX-A: \0\r\nContent-Length: 2\r\n\r\n{}',
  'another protocol': 'ICY 200 OK\r\nContent-Length: 2\r\n\r\n{}',
  'a size that is no number': 'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0x2\r\n{}\r\n0\r\n\r\n',
  'a longer chunk than its size': 'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n{}\r\n0\r\n\r\n',
  'a head without end': `HTTP/1.1 200 OK\r\nX-A: ${'a'.repeat(20_000)}`,
}))
  test(`a reply that can be read in two ways is refused, and its socket is closed: ${name}`, async (t) => {
    let isClosed = false
    const { call, connections } = await setUp(t, (socket, number) => {
      if (number === 1) socket.once('close', () => (isClosed = true))
      serve(socket, () => void socket.write(number === 1 ? raw : JSON_200, 'latin1'))
    })
    const { end, last } = call()
    await end
    assert.equal(last.error?.reason, 'upstream_disconnected')
    assert.equal(last.error?.sent, true)
    await until('the socket is closed', () => isClosed)
    const next = call()
    await next.end
    assert.equal(next.last.body, '{}')
    assert.equal(connections(), 2)
  })

test('an unasked 100 Continue is skipped, and a 304 has no body whatever its length', async (t) => {
  const raws = [
    `HTTP/1.1 100 Continue\r\n\r\n${JSON_200}`,
    'HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n\r\n',
    JSON_200,
  ]
  const { call, connections } = await setUp(t, (socket) => serve(socket, () => socket.write(raws.shift()!)))
  for (const status of [200, 304, 200]) {
    const { end, last } = call()
    await end
    assert.equal(last.status, status)
  }
  assert.equal(connections(), 1)
})

test('calls one after the other share a socket, also with an empty line between replies', async (t) => {
  const { call, connections } = await setUp(t, (socket) =>
    serve(socket, () => socket.write(`${JSON_200}\r\n`)),
  )
  for (let count = 0; count < 3; count++) {
    const { end, last } = call()
    await end
    assert.equal(last.body, '{}')
  }
  assert.equal(connections(), 1)
})

test('bytes that a server sends to an idle socket never become the reply to the next call', async (t) => {
  const poison = JSON_200.replace('{}', '[]')
  const { call, connections } = await setUp(t, (socket, number) =>
    serve(socket, () => socket.write(number === 1 ? JSON_200 + poison : JSON_200)),
  )
  for (let count = 0; count < 2; count++) {
    const { end, last } = call()
    await end
    assert.equal(last.body, '{}')
  }
  assert.equal(connections(), 2)
})

for (const [name, header, isKept] of [
  ['Connection: close', 'Connection: close', false],
  ['an idle time shorter than the margin', 'Keep-Alive: timeout=2', false],
  ['a longer idle time', 'Keep-Alive: timeout=5', true],
] as const)
  test(`a server says how long a socket lives: ${name}`, async (t) => {
    const raw = JSON_200.replace('\r\n\r\n', `\r\n${header}\r\n\r\n`)
    const { call, connections } = await setUp(t, (socket) => serve(socket, () => socket.write(raw)))
    for (let count = 0; count < 2; count++) await call().end
    assert.equal(connections(), isKept ? 1 : 2)
  })

test('a socket that its server has closed is not used again', async (t) => {
  let last: Socket | undefined
  const { call, connections } = await setUp(t, (socket) => {
    last = socket
    serve(socket, () => socket.write(JSON_200))
  })
  await call().end
  const ended = new Promise((resolve) => last!.once('close', resolve))
  last!.end()
  await ended
  const { end, last: told } = call()
  await end
  assert.equal(told.body, '{}')
  assert.equal(connections(), 2)
})

test('calls beyond the most sockets wait, and are sent in order', async (t) => {
  const asked: string[] = []
  const answers: (() => void)[] = []
  const { call, connections } = await setUp(
    t,
    (socket) =>
      serve(socket, (request) => {
        asked.push(request.slice(request.indexOf('\r\n\r\n') + 4))
        answers.push(() => void socket.write(JSON_200))
      }),
    { connections: 2 },
  )
  const ends = ['1', '2', '3', '4'].map((body) => call(body).end)
  await until('two calls have come', () => asked.length === 2)
  while (answers.length > 0) {
    const before = asked.length
    answers.shift()!()
    if (before < 4) await until('the next call has come', () => asked.length > before)
  }
  await Promise.all(ends)
  assert.deepEqual(
    [asked.slice(0, 2).sort(), asked.slice(2)],
    [
      ['1', '2'],
      ['3', '4'],
    ],
  )
  assert.equal(connections(), 2)
})

test('an abandoned call closes its socket, a waiting call is never sent, and the next call is', async (t) => {
  const asked: string[] = []
  const { call } = await setUp(
    t,
    (socket) =>
      serve(socket, (request) => {
        asked.push(request.slice(request.indexOf('\r\n\r\n') + 4))
        if (asked.at(-1) === '3') socket.write(JSON_200)
      }),
    { connections: 1 },
  )
  const first = call('1')
  const second = call('2')
  const third = call('3')
  await until('the first call has come', () => asked.length === 1)
  second.reply.abort(gatewayError('cancelled', 'the caller left'))
  first.reply.abort(gatewayError('cancelled', 'the caller left'))
  await Promise.all([first.end, second.end, third.end])
  assert.deepEqual(asked, ['1', '3'])
  assert.deepEqual([first.last.error?.reason, second.last.error?.reason], ['cancelled', 'cancelled'])
  assert.equal(second.reply.sent, false)
})

for (const [name, raw] of [
  ['no head', ''],
  ['half a body', 'HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{'],
] as const)
  test(`a server that falls silent ends its call: ${name}`, async (t) => {
    const { call } = await setUp(t, (socket) => serve(socket, () => raw && socket.write(raw)), {
      timeout: 300,
    })
    const { end, last } = call()
    await end
    assert.equal(last.error?.reason, 'attempt_timeout')
  })

test('a connection that fails ends one waiting call, and the others go on', async (t) => {
  const server = createServer().listen(0, '127.0.0.1')
  await once(server, 'listening')
  const { port } = server.address() as AddressInfo
  server.close()
  await once(server, 'close')
  const calls = engines.own(`http://127.0.0.1:${port}`, 2, 1_000)
  t.after(() => calls.destroy())
  const all = [1, 2, 3].map(() => {
    const recorded = recorder()
    const reply = new HttpReply(recorded.sink, { maxReply: 1_000 })
    calls.dispatch({ method: 'POST', path: '/', headers: [], body: '{}' }, reply)
    return recorded
  })
  for (const { end, last } of all) {
    await end
    assert.deepEqual([last.error?.reason, last.error?.sent], ['upstream_unavailable', false])
  }
})

test('closing the sockets ends sent and waiting calls, and later calls at once', async (t) => {
  let hasCome = false
  const { calls, call } = await setUp(t, (socket) => serve(socket, () => (hasCome = true)), {
    connections: 1,
  })
  const [first, second] = [call(), call()]
  await until('a call has come', () => hasCome)
  await calls.destroy()
  const third = call()
  await Promise.all([first.end, second.end, third.end])
  for (const { last } of [first, second, third]) assert.ok(last.error !== undefined)
})

test('a header that would end its line reaches no server', async (t) => {
  let count = 0
  const { call } = await setUp(t, (socket) => serve(socket, () => (count++, socket.write(JSON_200))))
  const { end, last } = call('{}', ['x-a', 'one\r\nx-b: two'])
  await end
  assert.ok(last.error !== undefined)
  assert.equal(count, 0)
})

test('a header of the connection, and a value outside of ASCII, go out as undici writes them', async (t) => {
  const heads: string[] = []
  for (const engine of ['undici', 'own'] as const) {
    const { call } = await setUp(
      t,
      (socket) =>
        serve(socket, (request) => {
          heads.push(request.replace(/127\.0\.0\.1:\d+/, 'host'))
          socket.write(JSON_200)
        }),
      { engine },
    )
    for (const headers of [['x-a', 'b'], ['x-a', '\xe9'], ['host', 'elsewhere'], ['connection', 'close'], []])
      await call('{"é":1}', headers, ['x-b', 'c']).end
  }
  assert.deepEqual(heads.slice(5), heads.slice(0, 5))
})
