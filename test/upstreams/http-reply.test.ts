import assert from 'node:assert/strict'
import type { RequestListener } from 'node:http'
import { test, type TestContext } from 'node:test'
import { gatewayError, type GatewayError } from '../../src/mesh/errors.ts'
import { HttpReply, type ReplySink } from '../../src/upstreams/http-reply.ts'
import { until } from '../support/until.ts'
import { eventStream, wireTo } from '../support/wired.ts'

const LIMIT = 100_000

/** A sink that writes down what it is told, in short words. */
function recorder() {
  const told: string[] = []
  const last: { error?: GatewayError; body?: string; status?: number } = {}
  let over = () => {}
  const end = new Promise<void>((resolve) => (over = resolve))
  let held: Promise<void> | undefined
  const sink: ReplySink = {
    opened: (headers) => void told.push(`opened ${headers.mediaType}`),
    event({ data }) {
      told.push(`event ${data.slice(0, 20)}`)
      return held
    },
    body(status, _, body) {
      told.push('body')
      Object.assign(last, { status, body })
      over()
    },
    ended() {
      told.push('ended')
      over()
    },
    failed(error) {
      told.push(`failed ${error.reason}`)
      last.error = error
      over()
    },
  }
  return { sink, told, last, end, hold: (promise: Promise<void>) => (held = promise) }
}

/** Posts something to a server, and records the reply. */
async function post(t: TestContext, handle: RequestListener, limit = LIMIT) {
  const { wire, stop } = await wireTo(t, handle)
  const recorded = recorder()
  const reply = new HttpReply(recorded.sink, limit)
  wire.post('{}', undefined, reply)
  return { ...recorded, reply, wire, stop }
}

test('a reply that is no event stream comes whole, with its status, whatever its chunks', async (t) => {
  const bytes = Buffer.from('{"text":"ü😀"}')
  for (const status of [200, 202, 404, 500]) {
    const { last, told, end } = await post(t, (_, response) => {
      response.writeHead(status, { 'content-type': 'application/json' })
      for (const byte of bytes) response.write(Buffer.of(byte))
      response.end()
    })
    await end
    assert.deepEqual([last.status, last.body, told], [status, bytes.toString(), ['body']])
  }
})

test('a stream of events comes event by event', async (t) => {
  const { told, end } = await post(t, (_, response) => {
    response.writeHead(200, { 'Content-Type': 'Text/Event-Stream; charset=utf-8' })
    response.end('data: a\n\n: ping\n\ndata: b\n\ndata: unfinished')
  })
  await end
  assert.deepEqual(told, ['opened text/event-stream; charset=utf-8', 'event a', 'event b', 'ended'])
})

test('events with another status than 200 are no stream', async (t) => {
  const { last, end } = await post(t, (_, response) => {
    response.writeHead(404, eventStream).end('data: a\n\n')
  })
  await end
  assert.deepEqual([last.status, last.body], [404, 'data: a\n\n'])
})

test('hints before the reply are no reply', async (t) => {
  const { last, end } = await post(t, (_, response) => {
    response.writeEarlyHints({ link: '</x>; rel=preload' })
    response.writeHead(200, { 'content-type': 'application/json' }).end('{}')
  })
  await end
  assert.deepEqual([last.status, last.body], [200, '{}'])
})

test('a reply that is larger than the limit is given up, whole or as an event', async (t) => {
  for (const headers of [{ 'content-type': 'application/json' }, eventStream]) {
    const { last, end } = await post(t, (_, response) => {
      response.on('error', () => undefined)
      response.writeHead(200, headers)
      const more = () => {
        while (!response.destroyed) if (!response.write(`data: ${'x'.repeat(9_000)}\n`)) return
      }
      response.on('drain', more)
      more()
    })
    await end
    assert.equal(last.error?.reason, 'reply_too_large')
    assert.equal(last.error.sent, true)
    assert.match(last.error.message, /larger than 100000 bytes/)
  }
})

test('of a long page about an error only the beginning is read', async (t) => {
  const { last, end } = await post(t, (_, response) => {
    response.writeHead(502, { 'content-type': 'text/html' })
    response.end('x'.repeat(LIMIT * 10))
  })
  await end
  assert.equal(last.status, 502)
  assert.ok((last.body?.length ?? 0) <= 64 * 1024)
})

test('a server that is not there could not be reached, and got nothing', async (t) => {
  const { wire, stop } = await wireTo(t, () => assert.fail('reached'))
  stop()
  const { sink, last, end } = recorder()
  const reply = new HttpReply(sink, LIMIT)
  wire.post('{}', undefined, reply)
  await end
  assert.equal(reply.sent, false)
  assert.deepEqual(last.error, gatewayError('upstream_unavailable', 'cannot connect (ECONNREFUSED)'))
})

test('a connection that breaks before or within the reply may have done its work', async (t) => {
  for (const head of [
    undefined,
    { 'content-type': 'application/json', 'content-length': 100 },
    eventStream,
  ]) {
    const { last, reply, end } = await post(t, (_, response) => {
      if (head === undefined) return void response.destroy()
      response.writeHead(200, head).write('data: a\n\n', () => response.destroy())
    })
    await end
    assert.equal(last.error?.reason, 'upstream_disconnected')
    assert.equal(last.error.sent, true)
    assert.equal(reply.sent, true)
  }
})

test('a request that is given up fails for the reason that was given first', async (t) => {
  const { told, last, reply, end } = await post(
    t,
    (_, response) => void response.writeHead(200, eventStream).write('data: a\n\n'),
  )
  await until('the event is there', () => told.length === 2)
  const reason = gatewayError('cancelled', 'not needed', { sent: true })
  reply.abort(reason)
  reply.abort(gatewayError('internal', 'too late'))
  await end
  assert.equal(last.error, reason)
})

test('a request that is given up before it had a socket is never sent', async (t) => {
  const { wire } = await wireTo(t, () => assert.fail('sent'))
  const { sink, last, end } = recorder()
  const reply = new HttpReply(sink, LIMIT)
  wire.post('{}', undefined, reply)
  reply.abort(gatewayError('cancelled', 'not needed'))
  await end
  assert.equal(last.error?.reason, 'cancelled')
  assert.equal(reply.sent, false)
})

test('a sink that asks to wait holds the server back, and goes on where it was', async (t) => {
  let written = 0
  const total = 400
  const { told, hold, end } = await post(t, (_, response) => {
    response.writeHead(200, eventStream)
    const more = () => {
      while (written < total) {
        written++
        if (!response.write(`data: ${written} ${'x'.repeat(90_000)}\n\n`)) return
      }
      response.end()
    }
    response.on('drain', more)
    more()
  })
  let release = () => {}
  hold(new Promise((resolve) => (release = resolve)))
  await until('the stream is held', () => told.length >= 2)
  for (let turn = 0; turn < 100; turn++) await new Promise((resolve) => setImmediate(resolve))
  assert.ok(written < total, `all of ${total} were read by a sink that waits`)
  hold(Promise.resolve())
  release()
  await end
  assert.equal(told.length, total + 2)
  assert.match(told.at(-2) ?? '', /^event 400 /)
})
