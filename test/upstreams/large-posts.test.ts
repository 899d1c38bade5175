import assert from 'node:assert/strict'
import { createHash } from 'node:crypto'
import { once } from 'node:events'
import type { RequestListener } from 'node:http'
import { test, type TestContext } from 'node:test'
import { gatewayError } from '../../src/mesh/errors.ts'
import { HttpReply } from '../../src/upstreams/http/http-reply.ts'
import { until } from '../support/until.ts'
import { wireTo } from '../support/wired.ts'
import { LIMIT, recorder } from './posted.ts'

const digest = (bytes: string | Buffer) => createHash('sha256').update(bytes).digest('hex')

/** Characters of one to four bytes, so slices end inside characters. */
const large = JSON.stringify({ text: 'aé€😀'.repeat(200_000) })

async function setUp(t: TestContext, handle: RequestListener) {
  const { wire } = await wireTo(t, handle)
  return {
    post(body: string) {
      const recorded = recorder()
      const reply = new HttpReply(recorded.sink, { maxReply: LIMIT })
      wire.post(body, undefined, reply)
      return { ...recorded, reply }
    },
  }
}

test('a large body arrives as it is, with its length', async (t) => {
  const { post } = await setUp(t, (request, response) => {
    const hash = createHash('sha256')
    request.on('data', (chunk: Buffer) => hash.update(chunk))
    request.on('end', () => response.end(`${request.headers['content-length']} ${hash.digest('hex')}`))
  })
  const { last, end } = post(large)
  await end
  assert.equal(last.body, `${Buffer.byteLength(large)} ${digest(large)}`)
})

test('a large body is written with turns of the event loop in between', async (t) => {
  let isOver = false
  const { post } = await setUp(t, (request, response) => {
    request.resume().on('end', () => response.end())
  })
  const { end } = post(large)
  void end.then(() => (isOver = true))
  let turns = 0
  while (!isOver) {
    await new Promise((resolve) => setImmediate(resolve))
    turns++
  }
  assert.ok(turns >= Math.floor(Buffer.byteLength(large) / (128 * 1024)), `${turns} turns`)
})

test('a server that answers before a large body is complete is heard, and the next call goes through', async (t) => {
  const { post } = await setUp(t, (request, response) => {
    if (Number(request.headers['content-length']) > LIMIT) response.writeHead(413).end('too much')
    else request.resume().on('end', () => response.end('fine'))
  })
  const first = post(large)
  await first.end
  assert.equal(first.last.status, 413)
  const second = post('{}')
  await second.end
  assert.equal(second.last.body, 'fine')
})

test('a large body that nobody waits for any more is not written on', async (t) => {
  let came = 0
  let isClosed = false
  const { post } = await setUp(t, (request, response) => {
    if (Number(request.headers['content-length']) < LIMIT) return void response.end('fine')
    request.on('data', (chunk: Buffer) => (came += chunk.length))
    request.once('close', () => (isClosed = true))
    request.on('error', () => undefined)
  })
  const first = post(`"${'x'.repeat(50_000_000)}"`)
  await until('some bytes of the body came', () => came > 0)
  first.reply.abort(gatewayError('cancelled', 'the caller left'))
  await first.end
  assert.equal(first.last.error?.reason, 'cancelled')
  await until('the connection was closed', () => isClosed)
  assert.ok(came < 50_000_000, 'the whole body arrived')
  const second = post('{}')
  await second.end
  assert.equal(second.last.body, 'fine')
})

test('a connection that breaks in a large body fails the call that may have run', async (t) => {
  const { post } = await setUp(
    t,
    (request) => void once(request, 'data').then(() => request.socket.resetAndDestroy()),
  )
  const { last, end } = post(large)
  await end
  assert.equal(last.error?.reason, 'upstream_disconnected')
  assert.equal(last.error.sent, true)
})
