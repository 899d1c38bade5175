import assert from 'node:assert/strict'
import { once } from 'node:events'
import type { IncomingMessage } from 'node:http'
import { connect, type AddressInfo, type Socket } from 'node:net'
import { test, type TestContext } from 'node:test'
import { Bodies, refuseBody } from '../../../src/downstream/http/bodies.ts'
import type { UsualRoute } from '../../../src/downstream/http/engine/core.ts'
import { HttpEngine } from '../../../src/downstream/http/engine/engine.ts'
import { drained } from '../../../src/downstream/http/event-stream.ts'
import type { BodySource, HttpReply } from '../../../src/downstream/http/reply.ts'
import { createBoundedServer, MAX_PIPELINED, stopListening } from '../../../src/downstream/http/server.ts'
import { Quotas, type QuotaLimit } from '../../../src/downstream/limits/quotas.ts'
import { type Clock, systemClock } from '../../../src/mesh/clock.ts'
import { defaultLimits } from '../../support/default-limits.ts'
import { ManualClock } from '../../support/manual-clock.ts'
import { until } from '../../support/until.ts'

/** Answers a request with its body. */
type Answer = (reply: HttpReply, body: string) => void

type Reader = 'own' | 'node'

const MAX_BODY = 256 * 1024

const PATH = '/mcp'

/** A server with our engine in front of Node's, or without it; both give each request to `answer`. */
async function setUp(t: TestContext, answer: Answer, reader: Reader = 'own', clock: Clock = systemClock) {
  const refused: QuotaLimit[] = []
  const quotas = new Quotas(defaultLimits.shares, (limit) => refused.push(limit))
  const unread: HttpReply[] = []
  const guards = { quotas, unread: { wrote: (reply: HttpReply) => void unread.push(reply) } }
  const bodies = new Bodies(clock, { maxBody: MAX_BODY }, defaultLimits.bodies, () => undefined)
  const seen = { own: 0, node: 0 }
  const read = (reply: HttpReply, body: BodySource) =>
    bodies.read(body, (error, text = '') => {
      if (error !== null) refuseBody(reply, error, clock)
      else answer(reply, text)
    })
  const route: UsualRoute = {
    largestWhole: bodies.largestWhole,
    targetOf: ({ path }) => (path === PATH ? { server: undefined } : undefined),
    mayTake: () => true,
    take(_, reply, __, chunk, from, to) {
      seen.own++
      const text = bodies.textOf(reply.req.headers, chunk, from, to)
      if (typeof text === 'string') answer(reply, text)
      else refuseBody(reply, text, clock)
    },
    takeParts(_, reply, __, body) {
      seen.own++
      read(reply, body)
    },
  }
  const server = createBoundedServer(
    (request: IncomingMessage, response) => {
      seen.node++
      read(response, request)
    },
    guards,
    reader === 'node'
      ? undefined
      : (server, handOver) => new HttpEngine(server, handOver, { clock, route, ...guards }).begin,
  )
  server.keepAliveTimeout = 75_000
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  t.after(() => {
    server.closeAllConnections()
    server.close()
  })
  const { port } = server.address() as AddressInfo
  const open = () => {
    const socket = connect({ port, host: '127.0.0.1', allowHalfOpen: true }).setNoDelay()
    const peer = { socket, text: '', isEnded: false }
    t.after(() => socket.destroy())
    socket.on('error', () => undefined)
    socket.on('data', (chunk: Buffer) => (peer.text += chunk.toString('latin1')))
    socket.once('end', () => (peer.isEnded = true))
    socket.once('close', () => (peer.isEnded = true))
    return peer
  }
  return { server, quotas, refused, unread, seen, open }
}

const post = (body: string, more = '', path = PATH) =>
  `POST ${path} HTTP/1.1\r\nHost: a\r\n${more}Content-Length: ${Buffer.byteLength(body)}\r\n\r\n${body}`

const echo: Answer = (reply, body) =>
  void reply.writeHead(200, { 'content-length': Buffer.byteLength(body) }).end(body)

const undated = (text: string) => text.replaceAll(/Date: [^\r]+/g, 'Date: now')

const send = async (socket: Socket, ...parts: string[]) => {
  for (const part of parts) {
    socket.write(part)
    await new Promise((resolve) => setTimeout(resolve, 5))
  }
}

const answers: Readonly<Record<string, Answer>> = {
  'a short JSON': (reply) =>
    reply.writeHead(200, { 'content-type': 'application/json', 'content-length': 2 }).end('{}'),
  'characters outside of ASCII': (reply) => reply.writeHead(200, { 'content-length': 4 }).end('üé'),
  'characters of Latin-1 whose number is the declared length': (reply) =>
    reply.writeHead(200, { 'content-length': 2 }).end('é'),
  'a value outside of ASCII': (reply) =>
    reply.writeHead(200, { 'x-name': 'é', 'content-length': 2 }).end('{}'),
  'a status without a body': (reply) => reply.writeHead(202).end(),
  'no content': (reply) => reply.writeHead(204).end(),
  'no content, but a body': (reply) => reply.writeHead(204, { 'content-length': 2 }).end('{}'),
  'an unknown status': (reply) => reply.writeHead(599, { 'content-length': 0 }).end(''),
  'a date of its own': (reply) => reply.writeHead(200, { date: 'then', 'content-length': 0 }).end(),
  'the end of the connection': (reply) =>
    reply.writeHead(200, { Connection: 'close', 'content-length': 2 }).end('{}'),
  'a connection kept by name': (reply) =>
    reply.writeHead(200, { connection: 'keep-alive', 'content-length': 2 }).end('{}'),
  'a time of its own': (reply) =>
    reply.writeHead(200, { 'keep-alive': 'timeout=5', 'content-length': 2 }).end('{}'),
  'its own transfer coding': (reply) => reply.writeHead(200, { 'transfer-encoding': 'chunked' }).end('{}'),
  'bytes in parts': (reply) => {
    reply.writeHead(200, { 'content-length': 6 })
    reply.cork()
    for (const part of ['ab', 'cd', 'ef']) reply.write(Buffer.from(part))
    reply.end()
  },
  'an event stream': (reply) => {
    reply.writeHead(200, { 'content-type': 'text/event-stream' })
    reply.flushHeaders()
    // Node 24 joins the chunks of one tick.
    reply.write('data: ü\n\n')
    setImmediate(() => reply.end('data: the last one\n\n'))
  },
  'an event stream that ends with bytes': (reply) => {
    reply.writeHead(200, { 'content-type': 'text/event-stream' })
    reply.end(Buffer.from('data: 1\n\n'))
  },
  'a stream that ends without more': (reply) => {
    reply.writeHead(200).write('data: 1\n\n')
    setImmediate(() => reply.end())
  },
}

for (const [what, answer] of Object.entries(answers)) {
  test(`both engines send the same bytes for ${what}`, async (t) => {
    const [own, node] = await Promise.all(
      (['own', 'node'] as const).map(async (reader) => {
        const { open, seen } = await setUp(
          t,
          (reply, body) => (body === 'end' ? echo(reply, 'ended') : answer(reply, body)),
          reader,
        )
        const { socket, ...peer } = open()
        socket.on('data', (chunk: Buffer) => (peer.text += chunk.toString('latin1')))
        socket.once('end', () => (peer.isEnded = true))
        socket.write(post('{}') + post('end'))
        await until('the replies are complete', () => peer.isEnded || peer.text.endsWith('ended'))
        assert.ok(seen[reader] > 0)
        return undated(peer.text)
      }),
    )
    assert.equal(own, node)
  })
}

test('a request split at any byte gets the same reply', async (t) => {
  const { open } = await setUp(t, echo)
  const text = post('{"text":"ü"}')
  const bytes = Buffer.from(text)
  const replies = await Promise.all(
    Array.from({ length: bytes.length - 1 }, async (_, index) => {
      const peer = open()
      peer.socket.write(bytes.subarray(0, index + 1))
      await new Promise((resolve) => setTimeout(resolve, 10))
      peer.socket.write(bytes.subarray(index + 1))
      await until('the reply is complete', () => peer.text.endsWith('"}'))
      return undated(peer.text)
    }),
  )
  assert.equal(new Set(replies).size, 1, [...new Set(replies)].join('\n---\n'))
})

test('a body in many parts, and a body too large to arrive at once, arrive whole', async (t) => {
  const { open, seen } = await setUp(t, echo)
  const body = 'x'.repeat(200 * 1024)
  const peer = open()
  await send(peer.socket, post('abc').slice(0, -2), 'b', 'c', post(body), post('last'))
  await until('all replies have come', () => peer.text.endsWith('last'))
  assert.ok(peer.text.includes(body))
  assert.deepEqual(seen, { own: 3, node: 0 })
})

test('pipelined requests are handled together and answered in order', async (t) => {
  const replies = new Map<string, HttpReply>()
  const { open, quotas } = await setUp(t, (reply, body) => void replies.set(body, reply))
  const peer = open()
  peer.socket.write(post('first') + post('second') + post('third'))
  await until('all requests have come', () => replies.size === 3)
  assert.equal(quotas.pipelined.total, 2)
  for (const body of ['third', 'second', 'first']) echo(replies.get(body)!, body)
  await until('all replies have come', () => peer.text.endsWith('third'))
  assert.match(peer.text, /first[^]+second[^]+third/)
  assert.equal(quotas.pipelined.total, 0)
})

test('an unusual request, and all bytes after it, go to Node and come back in order', async (t) => {
  const chunked = `POST ${PATH} HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n3\r\ntwo\r\n0\r\n\r\n`
  const { open, seen, quotas } = await setUp(t, echo)
  const peer = open()
  peer.socket.write(post('one'))
  await until('the first reply has come', () => peer.text.endsWith('one'))
  assert.deepEqual(seen, { own: 1, node: 0 })
  peer.socket.write(chunked + post('three'))
  await until('all replies have come', () => peer.text.endsWith('three'))
  peer.socket.write(post('four'))
  await until('the last reply has come', () => peer.text.endsWith('four'))
  assert.match(peer.text, /one[^]+two[^]+three[^]+four/)
  assert.deepEqual(seen, { own: 1, node: 3 })
  assert.equal(quotas.connections.total, 1)
  peer.socket.destroy()
  await until('the connection is not counted any more', () => quotas.connections.total === 0)
})

test('an unusual request behind an open reply waits for it, and counts as waiting', async (t) => {
  const replies: [HttpReply, string][] = []
  const { open, seen, quotas } = await setUp(t, (reply, body) => void replies.push([reply, body]))
  const peer = open()
  peer.socket.write(post('one'))
  await until('the request has come', () => replies.length === 1)
  await send(peer.socket, 'GET ', `${PATH} HTTP/1.1\r\nhost: a\r\n\r\n`, post('three'))
  await until('the bytes wait', () => quotas.pipelined.total === 1)
  assert.deepEqual(seen, { own: 1, node: 0 })
  echo(replies[0]![0], 'one')
  await until('Node has read the rest', () => replies.length === 3)
  for (const [reply] of replies.slice(1)) echo(reply, 'rest')
  await until('all replies have come', () => peer.text.split('rest').length === 3)
  assert.deepEqual(
    replies.map(([, body]) => body),
    ['one', '', 'three'],
  )
  assert.equal(quotas.pipelined.total, 0)
})

test('a connection with too many requests behind one that takes long is closed', async (t) => {
  const replies: HttpReply[] = []
  let closed = 0
  const { open, quotas, refused } = await setUp(t, (reply) => {
    replies.push(reply)
    reply.on('close', () => closed++)
  })
  const peer = open()
  peer.socket.write(post('a').repeat(MAX_PIPELINED + 1))
  await until('all requests have come', () => replies.length === MAX_PIPELINED + 1)
  peer.socket.write(post('a'))
  await until('the connection is closed', () => peer.isEnded && closed === replies.length)
  assert.deepEqual([refused, quotas.pipelined.total], [['pipelined_per_connection'], 0])
})

test('a header value with a line break is refused', async (t) => {
  const errors: unknown[] = []
  const { open } = await setUp(t, (reply, body) => {
    for (const value of ['a\r\nb', 'a\nb', 'a\0b'])
      try {
        reply.writeHead(200, { 'x-name': value })
      } catch (error) {
        errors.push((error as NodeJS.ErrnoException).code)
      }
    echo(reply, body)
  })
  const peer = open()
  peer.socket.write(post('{}'))
  await until('the reply has come', () => peer.text.endsWith('{}'))
  assert.deepEqual(errors, Array(3).fill('ERR_INVALID_CHAR'))
  assert.doesNotMatch(peer.text, /x-name/)
})

for (const reader of ['own', 'node'] as const) {
  test(`a client that leaves ends its open replies (${reader})`, async (t) => {
    const replies: HttpReply[] = []
    const closed: number[] = []
    const { open } = await setUp(
      t,
      (reply) => {
        const nth = replies.push(reply)
        reply.on('close', () => closed.push(nth))
      },
      reader,
    )
    const peer = open()
    peer.socket.write(post('a') + post('b'))
    await until('both requests have come', () => replies.length === 2)
    peer.socket.destroy()
    await until('both replies have ended', () => closed.length === 2)
    assert.deepEqual(
      replies.map(({ writableFinished }) => writableFinished),
      [false, false],
    )
  })

  test(`a client that ends its half of the connection counts as gone (${reader})`, async (t) => {
    let closed = 0
    const { open } = await setUp(t, (reply) => void reply.on('close', () => closed++), reader)
    const peer = open()
    peer.socket.end(post('a'))
    await until('the connection has ended', () => peer.isEnded && closed === 1)
    assert.equal(peer.text, '')
  })

  test(`a body that never comes is refused with 408 (${reader})`, async (t) => {
    const clock = new ManualClock()
    const { open } = await setUp(t, echo, reader, clock)
    const peer = open()
    peer.socket.write(post('abc').slice(0, -1))
    await new Promise((resolve) => setTimeout(resolve, 50))
    for (let second = 0; second < 120 && peer.text === ''; second++) await clock.advance(1_000)
    await until('the refusal has come', () => peer.text.includes(' 408 '))
    for (let second = 0; second < 3; second++) await clock.advance(1_000)
    await until('the connection has closed', () => peer.isEnded)
  })

  test(`a body that is too large is refused before it comes (${reader})`, async (t) => {
    const { open } = await setUp(t, echo, reader)
    const peer = open()
    const body = 'x'.repeat(MAX_BODY + 1)
    const text = post(body)
    peer.socket.write(text.slice(0, 1_000))
    await until('the refusal has come', () => peer.text.includes(' 413 ') && peer.text.endsWith('}'))
    peer.socket.write(text.slice(1_000) + post('next'))
    await until('the connection goes on', () => peer.text.endsWith('next'))
  })

  test(`once the server stops, open replies end their connection (${reader})`, async (t) => {
    const replies: HttpReply[] = []
    const { open, server } = await setUp(t, (reply) => void replies.push(reply), reader)
    const [idle, busy] = [open(), open()]
    idle.socket.write(post('a'))
    await until('the first request has come', () => replies.length === 1)
    echo(replies[0]!, 'first')
    busy.socket.write(post('b'))
    await until('both requests have come', () => idle.text.endsWith('first') && replies.length === 2)
    let isOver = false
    stopListening(server, () => (isOver = true))
    server.closeIdleConnections()
    await until('the idle connection has closed', () => idle.isEnded)
    assert.equal(busy.isEnded, false)
    echo(replies[1]!, 'second')
    await until('the busy connection has closed', () => busy.isEnded)
    assert.match(busy.text, /\r\nConnection: close\r\n[^]*second$/)
    idle.socket.destroy()
    busy.socket.destroy()
    await until('the server has closed', () => isOver)
  })

  test(`a writer waits for a client that does not read (${reader})`, async (t) => {
    let closes = 0
    let wrote = 0
    const { open, unread } = await setUp(
      t,
      (reply) => {
        reply.writeHead(200, { 'content-type': 'text/event-stream' })
        reply.once('finish', () => assert.equal(closes, 0)).once('close', () => closes++)
        void (async () => {
          for (let nth = 0; nth < 200; nth++) {
            if (!reply.write('x'.repeat(64 * 1024))) await drained(reply)
            wrote++
          }
          reply.end('last')
        })()
      },
      reader,
    )
    const peer = open()
    peer.socket.pause()
    peer.socket.write(post('a'))
    await until('the writer waits', () => wrote > 0)
    await new Promise((resolve) => setTimeout(resolve, 100))
    assert.ok(wrote < 200, `${wrote} written`)
    peer.socket.resume()
    await until('the reply is complete', () => peer.text.endsWith('0\r\n\r\n') && closes === 1)
    assert.equal(unread.length <= 1, true)
  })
}

test('a connection closes when it is idle for too long, or never sends a request', async (t) => {
  const clock = new ManualClock()
  const { open, quotas } = await setUp(t, echo, 'own', clock)
  const [silent, idle] = [open(), open()]
  idle.socket.write(post('a'))
  await until('the reply has come', () => idle.text.endsWith('a') && quotas.connections.total === 2)
  for (let ms = 0; ms < 55_000; ms += 5_000) await clock.advance(5_000)
  assert.deepEqual([silent.isEnded, idle.isEnded], [false, false])
  for (let ms = 0; ms < 15_000; ms += 5_000) await clock.advance(5_000)
  await until('the silent connection has closed', () => silent.isEnded)
  assert.equal(idle.isEnded, false)
  for (let ms = 0; ms < 15_000; ms += 5_000) await clock.advance(5_000)
  await until('the idle connection has closed', () => idle.isEnded)
})
