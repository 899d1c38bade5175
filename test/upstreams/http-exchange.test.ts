import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { Answer, Channel } from '../../src/mesh/call.ts'
import { HttpExchange, UnderWay } from '../../src/upstreams/http/http-exchange.ts'
import { Unread } from '../../src/upstreams/unread.ts'
import { ManualClock } from '../support/manual-clock.ts'
import { until } from '../support/until.ts'
import { wireTo } from '../support/wired.ts'

test('a call ends when its server does not get the answer to its question, whoever answers', async (t) => {
  const { wire } = await wireTo(t, (request, response) => {
    let body = ''
    request.on('data', (chunk: Buffer) => (body += chunk.toString()))
    request.on('end', () => {
      // The server does not acknowledge answers.
      if (!body.includes('tools/call')) return
      response.writeHead(200, { 'content-type': 'text/event-stream' })
      for (const id of [1, 2]) response.write(`data: {"jsonrpc":"2.0","id":${id},"method":"roots/list"}\n\n`)
    })
  })
  const answers: Answer[] = []
  const channel: Channel = {
    open: () => undefined,
    pause: () => undefined,
    send: (_, answer) => void (answer && answers.push(answer)),
  }
  const request = {
    id: 7,
    text: '{"jsonrpc":"2.0","id":7,"method":"tools/call"}',
    headers: undefined,
    signal: new AbortController().signal,
    channel,
  }
  const ended = HttpExchange.run(wire, request, {
    clock: new ManualClock(),
    maxReply: 100_000,
    ackMs: 1_000,
    underWay: new UnderWay(),
    unread: new Unread({ messages: 1, bytes: 1_000 }),
  })
  await until('both clients are asked', () => answers.length === 2)
  const [first, second] = answers
  void first?.('{"jsonrpc":"2.0","id":0,"result":{}}').catch(() => undefined)
  await assert.rejects(second!('{"jsonrpc":"2.0","id":0,"result":{}}'), { reason: 'overloaded' })
  const reading = await ended
  assert.ok(reading.kind === 'failed' && reading.error.reason === 'overloaded')
  assert.equal(reading.error.sent, true, 'the call itself may have run')
})

test('the gateway reopens a broken stream as soon as its client is back, at most once in 100 ms', async (t) => {
  const gets: (string | undefined)[] = []
  const { wire } = await wireTo(t, (request, response) => {
    if (request.method === 'GET') gets.push(request.headers['last-event-id'] as string | undefined)
    response.writeHead(200, { 'content-type': 'text/event-stream' })
    response.end(
      gets.length < 2
        ? `id: place-${gets.length}\nretry: 30000\ndata: \n\n`
        : 'data: {"jsonrpc":"2.0","id":7,"result":{}}\n\n',
    )
    request.resume()
  })
  const clock = new ManualClock()
  const back: ((() => void) | undefined)[] = []
  const ended = HttpExchange.run(
    wire,
    {
      id: 7,
      text: '{"jsonrpc":"2.0","id":7,"method":"tools/call"}',
      headers: undefined,
      signal: new AbortController().signal,
      channel: {
        open: () => undefined,
        pause: (_, askNow) => void back.push(askNow),
        send: () => undefined,
      },
    },
    {
      clock,
      maxReply: 100_000,
      ackMs: 1_000,
      underWay: new UnderWay(),
      unread: new Unread({ messages: 1, bytes: 1_000 }),
    },
  )
  await until('the client is sent away', () => back.length === 1)
  back[0]?.()
  back[0]?.()
  await clock.advance(99)
  assert.deepEqual(gets, [])
  await clock.advance(1)
  await until('the client is sent away again', () => back.length === 2)
  await clock.advance(29_000)
  assert.deepEqual(gets, ['place-0'])
  // The first callback no longer has any effect.
  back[0]?.()
  await clock.advance(100)
  assert.deepEqual(gets, ['place-0'])
  back[1]?.()
  await clock.advance(0)
  assert.equal((await ended).kind, 'answered')
  assert.deepEqual(gets, ['place-0', 'place-1'])
})
