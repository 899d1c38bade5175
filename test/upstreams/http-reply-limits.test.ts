import assert from 'node:assert/strict'
import { test } from 'node:test'
import { until } from '../support/until.ts'
import { eventStream } from '../support/wired.ts'
import { HttpReply } from '../../src/upstreams/http/http-reply.ts'
import { LIMIT, post, recorder } from './posted.ts'

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

test('a reply behind more interim responses than anybody needs is given up', async (t) => {
  for (const [count, reason] of [
    [100, undefined],
    [101, 'bad_reply'],
  ] as const) {
    const { last, end } = await post(t, (_, response) => {
      for (let n = 0; n < count; n++) response.writeProcessing()
      response.writeHead(200, { 'content-type': 'application/json' }).end('{}')
    })
    await end
    assert.deepEqual(
      [last.error?.reason, last.error?.sent],
      (reason && [reason, true]) || [undefined, undefined],
    )
  }
})

test('the gateway reads only the beginning of a long error page', async (t) => {
  const { last, end } = await post(t, (_, response) => {
    response.writeHead(502, { 'content-type': 'text/html' })
    response.end('x'.repeat(LIMIT * 10))
  })
  await end
  assert.equal(last.status, 502)
  const { length = 0 } = last.body ?? ''
  assert.ok(length > 1_000 && length <= 64 * 1024, `${length} characters, however much came at once`)
})

test('a large error body is no too large reply: its text is told up to the limit', async (t) => {
  const page = 'no such session. '.repeat(500)
  const { last, told, end } = await post(
    t,
    (_, response) => void response.writeHead(404, { 'content-type': 'text/plain' }).end(page),
    1_024,
  )
  await end
  assert.deepEqual([told, last.status, last.body], [['body'], 404, page.slice(0, 1_024)])
})

test('an endless error body ends once enough of it has come', async (t) => {
  let closed = false
  const { last, told, end } = await post(t, (_, response) => {
    response.on('error', () => undefined)
    response.once('close', () => (closed = true))
    response.writeHead(405, { 'content-type': 'text/html' })
    const more = () => {
      if (closed) return
      if (response.write('x'.repeat(9_000))) setImmediate(more)
      else response.once('drain', more)
    }
    more()
  })
  await end
  assert.equal(last.status, 405)
  await until('the connection was dropped', () => closed)
  assert.deepEqual(told, ['body'])
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
  assert.ok(written < total, `a waiting sink read all of ${total} bytes`)
  hold(Promise.resolve())
  release()
  await end
  assert.equal(told.length, total + 2)
  assert.match(told.at(-2) ?? '', /^event 400 /)
})

test('the gateway reads at most 256 KiB of a large reply in one go', () => {
  const { sink } = recorder()
  const reply = new HttpReply(sink, { maxReply: 10_000_000 })
  const resumed: string[] = []
  reply.onConnect(() => undefined)
  reply.onHeaders(200, [], () => void resumed.push('resumed'))
  const chunk = Buffer.alloc(64 * 1024, 'x')
  assert.deepEqual(
    Array.from({ length: 5 }, () => reply.onData(chunk)),
    [true, true, true, false, true],
  )
  assert.deepEqual(resumed, [])
})
