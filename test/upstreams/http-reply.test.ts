import assert from 'node:assert/strict'
import { test } from 'node:test'
import { nextTurn } from '../../src/mesh/clock.ts'
import { gatewayError } from '../../src/mesh/errors.ts'
import { HttpReply, transportError } from '../../src/upstreams/http/http-reply.ts'
import { until } from '../support/until.ts'
import { eventStream, wireTo } from '../support/wired.ts'
import { LIMIT, post, recorder } from './posted.ts'

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

test('a byte order mark is no part of a reply, however large the reply', async (t) => {
  for (const body of ['{}', `"${'x'.repeat(80_000)}"`]) {
    const { last, end } = await post(t, (_, response) => void response.end(`\ufeff${body}`))
    await end
    assert.equal(last.body, body)
  }
})

/** Reads a reply in pieces of `piece` bytes into a sink that takes messages. */
function reading(status: number, body: string | Buffer, piece = 50_000) {
  const { sink, told, last, end } = recorder({ takesMessages: true })
  const reply = new HttpReply(sink, { maxReply: 10_000_000 })
  reply.onConnect(() => undefined)
  reply.onHeaders(status, [], () => undefined)
  const bytes = Buffer.from(body)
  for (let at = 0; at < bytes.length; at += piece) reply.onData(bytes.subarray(at, at + piece))
  reply.onComplete()
  return { reply, told, last, end }
}

const large = 'x'.repeat(100_000)

test('a large JSON object is a message, and stays the bytes that it came in', async () => {
  const text = `{"id":1,"result":{"text":"${large}"}}`
  const { told, last, end } = reading(200, text)
  await end
  assert.deepEqual(told, ['message'])
  assert.equal(Buffer.concat(last.message!.chunks).toString(), text)
  assert.deepEqual(last.message?.value, JSON.parse(text))
})

test('a reply that is small, an error, or no JSON object is a body', async () => {
  for (const [status, body] of [
    [200, `{"text":"${'x'.repeat(60_000)}"}`],
    [400, `{"text":"${'x'.repeat(60_000)}"}`],
    [201, `{"text":"${large}"}`],
    [200, `"${large}"`],
    [200, `{"text":"${large}"`],
    [200, large],
  ] as const) {
    const { told, last, end } = reading(status, body)
    await end
    assert.deepEqual([told, last.status, last.body], [['body'], status, body])
  }
})

test('a reply with more than 1 MiB besides its long strings is a body, which is read in turns', async () => {
  const block = `{"text":"${large}"}`
  const rest = `"${'x'.repeat(15_000)}",`.repeat(80)
  const ways = {
    message: [`{"a":[${`${block},`.repeat(40)}${block}]}`, `{"a":[${rest.slice(0, 900_000)}",${block}]}`],
    body: [
      `{"a":[${block},${rest}${block}]}`,
      `{"a":${'['.repeat(20)}"${large.repeat(12)}"${']'.repeat(20)}}`,
      `{"a":[${block}${' '.repeat(1_200_000)}]}`,
      `{"${large.repeat(12)}":${block}}`,
    ],
  }
  for (const [way, texts] of Object.entries(ways))
    for (const text of texts) {
      const { told, last, end } = reading(200, text, 64 * 1024)
      await end
      assert.deepEqual(told, [way])
      assert.equal(last.body ?? last.message?.text, text)
    }
})

test('a large reply that nobody wants any more is not read, whenever that happens', async () => {
  const error = gatewayError('cancelled', 'nobody waits')
  for (const turns of [0, 1, 2, 3, 10]) {
    const { reply, told, last, end } = reading(200, `{"text":"${large.repeat(40)}"}`)
    for (let turn = 0; turn < turns; turn++) await nextTurn()
    if (told.length > 0) continue
    reply.abort(error)
    await end
    assert.deepEqual([told, last.error], [['failed cancelled'], error])
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
    response.writeEarlyHints({ upstreamSession: '</x>; rel=preload' })
    response.writeHead(200, { 'content-type': 'application/json' }).end('{}')
  })
  await end
  assert.deepEqual([last.status, last.body], [200, '{}'])
})

test('a server that is not there could not be reached, and got nothing', async (t) => {
  const { wire, stop } = await wireTo(t, () => assert.fail('reached'))
  stop()
  const { sink, last, end } = recorder()
  const reply = new HttpReply(sink, { maxReply: LIMIT })
  wire.post('{}', undefined, reply)
  await end
  assert.equal(reply.sent, false)
  assert.deepEqual(
    last.error,
    gatewayError('upstream_unavailable', 'cannot connect (ECONNREFUSED)', { cause: 'connection_refused' }),
  )
})

test('a connection error names the likely remedy, if its code has one', () => {
  const messageOf = (code: string) => transportError(Object.assign(new Error(), { code }), false).message
  for (const [code, hint] of [
    ['DEPTH_ZERO_SELF_SIGNED_CERT', /tls\.ca/],
    ['UNABLE_TO_VERIFY_LEAF_SIGNATURE', /tls\.ca/],
    ['ERR_SSL_WRONG_VERSION_NUMBER', /http:\/\//],
    ['ENOTFOUND', /no host of this name/],
    ['ECONNREFUSED', /^cannot connect \(ECONNREFUSED\)$/],
  ] as const)
    assert.match(messageOf(code), hint)
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
  await until('the event has come', () => told.length === 2)
  const reason = gatewayError('cancelled', 'not needed', { sent: true })
  reply.abort(reason)
  reply.abort(gatewayError('internal', 'too late'))
  await end
  assert.equal(last.error, reason)
})

test('a request that is given up before it had a socket is never sent', async (t) => {
  const { wire } = await wireTo(t, () => assert.fail('sent'))
  const { sink, last, end } = recorder()
  const reply = new HttpReply(sink, { maxReply: LIMIT })
  wire.post('{}', undefined, reply)
  reply.abort(gatewayError('cancelled', 'not needed'))
  await end
  assert.equal(last.error?.reason, 'cancelled')
  assert.equal(reply.sent, false)
})

test('thousands of events that come at once are told in many turns, in order, and before the end', async (t) => {
  const events = Array.from({ length: 5_000 }, (_, n) => `data: ${n}\n\n`).join('')
  for (const ending of ['ended', 'failed']) {
    const { wire } = await wireTo(t, (_, response) => {
      if (ending === 'ended') return void response.writeHead(200, eventStream).end(events)
      response.writeHead(200, { ...eventStream, 'content-length': events.length + 1 })
      response.write(events, () => response.socket?.end())
    })
    const told: string[] = []
    let turn = 0
    const turns = new Set<number>()
    const end = new Promise<string>((resolve) => {
      const sink = {
        opened: () => undefined,
        event({ data }: { data: string }) {
          told.push(data)
          turns.add(turn)
          return undefined
        },
        body: () => resolve('body'),
        ended: () => resolve('ended'),
        failed: () => resolve('failed'),
      }
      wire.post('{}', undefined, new HttpReply(sink, { maxReply: LIMIT }))
    })
    let over = false
    void end.then(() => (over = true))
    while (!over) {
      await new Promise((resolve) => setImmediate(resolve))
      turn++
    }
    assert.equal(await end, ending)
    assert.deepEqual(
      told,
      Array.from({ length: 5_000 }, (_, n) => String(n)),
    )
    assert.ok(turns.size >= 10, `${turns.size} turns`)
  }
})

test('a stream whose end is held back fails once when it is given up, and tells nothing more', async () => {
  for (const ending of ['ended', 'failed']) {
    const { sink, told, last } = recorder()
    let release = (): void => undefined
    const calmed = new Promise<void>((resolve) => (release = resolve))
    const reply = new HttpReply({ ...sink, backpressure: () => calmed }, { maxReply: LIMIT })
    // Like undici: nothing more follows once a request has ended.
    const nothing = () => undefined
    reply.onConnect(nothing)
    reply.onHeaders(200, [Buffer.from('content-type'), Buffer.from('text/event-stream')], nothing)
    reply.onData(Buffer.from('data: a\n\ndata: b\n\n'))
    if (ending === 'ended') reply.onComplete()
    else reply.onError(new Error('broken'))
    const reason = gatewayError('cancelled', 'not needed')
    reply.abort(reason)
    reply.abort(gatewayError('internal', 'too late'))
    release()
    await nextTurn()
    assert.deepEqual(told, ['opened text/event-stream', 'event a', 'failed cancelled'])
    assert.equal(last.error, reason)
  }
})
