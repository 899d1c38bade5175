import assert from 'node:assert/strict'
import type { ServerResponse } from 'node:http'
import { test, type TestContext } from 'node:test'
import { gatewayError } from '../../src/mesh/errors.ts'
import { ownTurn } from '../../src/mesh/turns.ts'
import { HttpReply } from '../../src/upstreams/http/http-reply.ts'
import { UnfinishedReplies, type UnfinishedLimits } from '../../src/upstreams/unfinished-replies.ts'
import { until } from '../support/until.ts'
import { eventStream } from '../support/wired.ts'
import { post, recorder } from './posted.ts'

const KIB = 1024
const MAX = 200 * KIB

/** Begins a reply of `total` bytes, as body or stream, and stops after `sent` bytes. */
const begin = {
  body(response: ServerResponse, sent: number, total = sent) {
    response.writeHead(200, { 'content-type': 'application/json', 'content-length': total })
    response.write('x'.repeat(sent))
  },
  event(response: ServerResponse, sent: number) {
    response.writeHead(200, eventStream).write(`data: ${'x'.repeat(sent)}`)
  },
} as const

function setUp(limits: UnfinishedLimits) {
  const causes: string[] = []
  const all = new UnfinishedReplies(limits, (cause) => causes.push(cause))
  const server = () => {
    const share = all.of(MAX)
    /** Starts a hanging reply; resolves once the sent part has arrived. */
    const hang = async (t: TestContext, kind: keyof typeof begin, bytes: number) => {
      const before = share.bytes + bytes
      const reply = await post(t, (_, response) => begin[kind](response, bytes, MAX), MAX, share)
      return { ...reply, arrived: () => until('all bytes have come', () => share.bytes >= before) }
    }
    return { share, hang }
  }
  return { all, causes, server }
}

test('an unfinished reply counts until it is complete, breaks off or is abandoned', async (t) => {
  const { all, server } = setUp({ total: 1024 * KIB, perServer: 512 * KIB })
  const { share } = server()
  for (const kind of ['body', 'event'] as const)
    for (const end of ['complete', 'broken', 'aborted', 'too large'] as const) {
      let response: ServerResponse | undefined
      const total = end === 'too large' ? 300 * KIB : 150 * KIB
      const sent = await post(
        t,
        (_, own) => {
          response = own
          begin[kind](own, 100 * KIB, total)
        },
        MAX,
        share,
      )
      await until('the reply has come', () => all.bytes >= 100 * KIB)
      assert.equal(share.bytes, all.bytes)
      if (end === 'complete') response?.end(kind === 'body' ? 'x'.repeat(50 * KIB) : '\n\n')
      else if (end === 'broken') response?.destroy()
      else if (end === 'too large') response?.write('x'.repeat(200 * KIB))
      else {
        sent.reply.abort(gatewayError('cancelled', 'not needed'))
        assert.equal(all.bytes, 0, 'given back at once')
      }
      await sent.end
      assert.deepEqual([all.bytes, share.bytes], [0, 0], `${kind} ${end}`)
      sent.reply.abort(gatewayError('cancelled', 'once more'))
      assert.equal(all.bytes, 0, 'given back once')
    }
})

test('a large reply that is complete is held until it is read, its text as well as its bytes', async () => {
  const { all, server } = setUp({ total: 1024 * KIB, perServer: 512 * KIB })
  const { share } = server()
  const { sink, told } = recorder()
  const reply = new HttpReply(sink, { maxReply: MAX, unfinished: share })
  reply.onHeaders(200, [Buffer.from('content-type'), Buffer.from('application/json')], () => undefined)
  for (let n = 0; n < 2; n++) reply.onData(Buffer.alloc(75 * KIB, 'x'))
  reply.onComplete()
  // Turn 1 joins the chunks, turn 2 decodes them as text; the text is not yet read.
  for (let turn = 0; turn < 2; turn++) {
    await ownTurn(share)
    assert.deepEqual([told, all.bytes], [[], 150 * KIB])
  }
  await ownTurn(share)
  assert.deepEqual([told, all.bytes], [['body'], 0])
})

test('an event that is complete is held no longer, while its stream goes on', async (t) => {
  const { all, server } = setUp({ total: 1024 * KIB, perServer: 512 * KIB })
  const { share } = server()
  const { told } = await post(
    t,
    (_, response) => {
      begin.event(response, 100 * KIB)
      response.write('\n\n')
    },
    MAX,
    share,
  )
  await until('the event has come', () => told.length === 2)
  await until('the bytes are released', () => all.bytes === 0)
})

test('a reply that comes at once, and a small one, cost nothing', async (t) => {
  const { all, server } = setUp({ total: 1024 * KIB, perServer: 512 * KIB })
  const { share } = server()
  let changes = 0
  const { changed } = all
  all.changed = (...change) => {
    changes++
    changed.apply(all, change)
  }
  const whole = await post(t, (_, response) => response.setHeader('content-length', 2).end('{}'), MAX, share)
  const crumbs = await post(
    t,
    (_, response) => {
      for (const part of ['{', '"a"', ':1', '}']) response.write(part)
      response.end()
    },
    MAX,
    share,
  )
  await Promise.all([whole.end, crumbs.end])
  assert.equal(changes, 0)
})

for (const kind of ['body', 'event'] as const)
  test(`a server that has too much unfinished (${kind}) loses what has waited the longest for more`, async (t) => {
    const { all, causes, server } = setUp({ total: 1024 * KIB, perServer: 250 * KIB })
    const { share, hang } = server()
    const first = await hang(t, kind, 100 * KIB)
    await first.arrived()
    const second = await hang(t, kind, 100 * KIB)
    await second.arrived()
    const third = await hang(t, kind, 100 * KIB)
    await first.end
    assert.deepEqual([first.last.error?.reason, first.last.error?.sent], ['overloaded', true])
    assert.match(first.last.error?.message ?? '', /at most 256000; gateway\.limits\.memory/)
    await until('the third reply has come', () => share.bytes >= 200 * KIB)
    assert.deepEqual([second.last.error, third.last.error, causes], [undefined, undefined, ['per_server']])
    for (const { reply } of [second, third]) reply.abort(gatewayError('cancelled', 'not needed'))
    assert.equal(all.bytes, 0)
  })

test('when all servers together hold too much, the server with the most loses a reply, without blame', async (t) => {
  const { all, causes, server } = setUp({ total: 400 * KIB, perServer: 350 * KIB })
  const [large, small] = [server(), server()]
  const hung = [await large.hang(t, 'body', 150 * KIB)]
  await hung[0]?.arrived()
  hung.push(await large.hang(t, 'event', 150 * KIB))
  await hung[1]?.arrived()
  const innocent = await small.hang(t, 'body', 150 * KIB)
  await hung[0]?.end
  await innocent.arrived()
  assert.equal(hung[0]?.last.error?.reason, 'overloaded')
  assert.match(hung[0]?.last.error?.message ?? '', /at most 409600; gateway\.limits\.memory/)
  assert.deepEqual([innocent.last.error, hung[1]?.last.error, causes], [undefined, undefined, ['total']])
  for (const { reply } of [innocent, ...hung]) reply.abort(gatewayError('cancelled', 'not needed'))
  assert.equal(all.bytes, 0)
})

test('the limits are never less than one largest reply, and others can be put into force', async (t) => {
  const { all, server, causes } = setUp({ total: KIB, perServer: KIB / 2 })
  const one = await server().hang(t, 'body', 150 * KIB)
  await one.arrived()
  assert.deepEqual(causes, [])
  all.limits = { total: 1024 * KIB, perServer: 512 * KIB }
  const another = await server().hang(t, 'body', 150 * KIB)
  await another.arrived()
  assert.deepEqual(causes, [])
  for (const { reply } of [one, another]) reply.abort(gatewayError('cancelled', 'not needed'))
  assert.equal(all.bytes, 0)
})
