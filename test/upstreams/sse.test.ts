import assert from 'node:assert/strict'
import { once } from 'node:events'
import { createServer, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { text } from 'node:stream/consumers'
import { test } from 'node:test'
import { gatewayError, type GatewayError } from '../../src/mesh/errors.ts'
import { orBrokenOff } from '../support/broken-off.ts'
import { newCall, toolCall } from '../support/caller.ts'
import { listen, oldServer, openSse, sseUpstream, welcome } from '../support/sse-server.ts'
import { until } from '../support/until.ts'

test('configured headers go with every request, forwarded ones with their call', async (t) => {
  const { url, requests } = await oldServer(t, ({ id }, response, stream) => {
    response.writeHead(202).end()
    stream.write(`data: {"jsonrpc":"2.0","id":${String(id)},"result":{}}\n\n`)
  })
  const upstreamSession = await openSse(sseUpstream(t, url, { headers: { 'X-Key': 'secret' } }))
  await upstreamSession.exchange({ ...toolCall('t'), headers: { 'x-user': 'me' } })
  assert.ok(requests.every(({ headers }) => headers['x-key'] === 'secret'))
  assert.deepEqual(
    requests.map(({ url }) => url),
    ['/sse', ...Array<string>(3).fill('/messages?session=1')],
  )
  assert.deepEqual(
    requests.map(({ headers }) => headers['x-user']),
    [undefined, undefined, undefined, 'me'],
  )
})

test('no call waits because the server is slow to take notifications and cancellations', async (t) => {
  const silentTo: string[] = []
  let stream: ServerResponse | undefined
  const url = await listen(t, (request, response) => {
    if (request.method === 'GET') {
      stream = response.writeHead(200, { 'content-type': 'text/event-stream' })
      return void stream.write('event: endpoint\ndata: /messages\n\n')
    }
    const taking = text(request).then((body) => {
      const { id, method, params } = JSON.parse(body) as { id?: number; method: string; params?: object }
      const isSlow = JSON.stringify(params)?.includes('slow') === true
      if (id === undefined && method !== 'notifications/initialized') return silentTo.push(method)
      response.writeHead(202).end()
      const result = method === 'initialize' ? welcome : '{}'
      if (id !== undefined && !isSlow)
        stream?.write(`data: {"jsonrpc":"2.0","id":${id},"result":${result}}\n\n`)
      return undefined
    })
    orBrokenOff(taking)
  })
  const upstreamSession = await openSse(sseUpstream(t, url, { connections: 4 }))
  for (let n = 0; n < 10; n++) {
    void upstreamSession.post('{"jsonrpc":"2.0","method":"notifications/roots/list_changed"}').catch(() => {})
    const end = new AbortController()
    const call = toolCall('slow', {}, { signal: end.signal })
    const outcome = upstreamSession.exchange(call)
    await until('the call is sent', () => call.record.sent === true)
    end.abort(gatewayError('cancelled', 'enough'))
    await outcome
  }
  assert.equal((await upstreamSession.exchange(toolCall('t'))).kind, 'answered')
  assert.deepEqual(silentTo.slice().sort(), [
    'notifications/cancelled',
    'notifications/cancelled',
    'notifications/roots/list_changed',
    'notifications/roots/list_changed',
  ])
})

test('an endpoint of another origin gets none of our messages', async (t) => {
  for (const endpoint of ['http://127.0.0.1:1/messages', '//example.com/messages', 'http://[']) {
    const url = await listen(t, (_, response) => {
      response
        .writeHead(200, { 'content-type': 'text/event-stream' })
        .write(`event: endpoint\ndata: ${endpoint}\n\n`)
    })
    await assert.rejects(openSse(sseUpstream(t, url)), {
      reason: 'upstream_refused',
      message: /another origin/,
      sent: false,
    })
  }
})

test('an endpoint whose user cannot be read is refused like one of another origin', async (t) => {
  const url = await listen(t, (request, response) => {
    response
      .writeHead(200, { 'content-type': 'text/event-stream' })
      .write(`event: endpoint\ndata: http://%E0%A4%A@${request.headers.host}/messages\n\n`)
  })
  await assert.rejects(openSse(sseUpstream(t, url)), {
    reason: 'upstream_refused',
    message: /user or password/,
    sent: false,
  })
})

test('an invalid event stream fails with its reason', async (t) => {
  const reasons = {
    401: 'upstream_unauthorized',
    404: 'upstream_refused',
    429: 'upstream_rate_limited',
    503: 'upstream_status',
    200: 'bad_reply',
  }
  for (const [status, reason] of Object.entries(reasons)) {
    const url = await listen(t, (_, response) =>
      response.writeHead(Number(status), { 'retry-after': '2' }).end('{}'),
    )
    const retryAfterMs = ['429', '503'].includes(status) ? 2_000 : undefined
    await assert.rejects(openSse(sseUpstream(t, url)), { reason, sent: false, retryAfterMs })
  }
})

test('a server that is not there is unavailable', async (t) => {
  const server = createServer().listen(0, '127.0.0.1')
  await once(server, 'listening')
  const { port } = server.address() as AddressInfo
  server.close()
  await assert.rejects(openSse(sseUpstream(t, `http://127.0.0.1:${port}/sse`)), {
    reason: 'upstream_unavailable',
    sent: false,
  })
})

test('the wait for an endpoint can be given up', async (t) => {
  let [waiting, left] = [0, 0]
  const url = await listen(t, (request, response) => {
    response.writeHead(200, { 'content-type': 'text/event-stream' }).flushHeaders()
    waiting++
    request.once('close', () => left++)
  })
  const upstream = sseUpstream(t, url)
  const reason = gatewayError('attempt_timeout', 'too slow')
  await assert.rejects(openSse(upstream, AbortSignal.abort(reason)), reason)
  const patience = new AbortController()
  const opening = assert.rejects(openSse(upstream, patience.signal), reason)
  await until('the server has the request', () => waiting === 1)
  patience.abort(reason)
  await opening
  await until('the connection is given up', () => left === 1)
})

test('when the event stream ends, so do the conversation and its calls', async (t) => {
  const { url } = await oldServer(t, (_, response, stream) => {
    response.writeHead(202).end()
    stream.end()
  })
  const upstreamSession = await openSse(sseUpstream(t, url))
  const failed = await upstreamSession.exchange(toolCall('t'))
  assert.ok(failed.kind === 'failed' && failed.error.sent)
  assert.equal(failed.error.reason, 'upstream_disconnected')
  assert.equal((upstreamSession.ended.reason as GatewayError).reason, 'upstream_disconnected')
})

test('a message that the server does not take fails its call and no other', async (t) => {
  const { url } = await oldServer(t, ({ id, method }, response, stream) => {
    response.writeHead(method === 'ping' ? 202 : 500).end()
    if (method === 'ping') stream.write(`data: {"jsonrpc":"2.0","id":${String(id)},"result":{}}\n\n`)
  })
  const upstreamSession = await openSse(sseUpstream(t, url))
  const failed = await upstreamSession.exchange(toolCall('t'))
  assert.ok(failed.kind === 'failed' && failed.error.reason === 'upstream_status' && failed.error.sent)
  assert.equal((await upstreamSession.exchange(newCall({ method: 'ping' }))).kind, 'answered')
})

test('a server that forgot the conversation ends it', async (t) => {
  const { url } = await oldServer(t, (_, response) => response.writeHead(404).end())
  const upstreamSession = await openSse(sseUpstream(t, url))
  const failed = await upstreamSession.exchange(toolCall('t'))
  assert.ok(failed.kind === 'failed' && failed.error.reason === 'upstream_disconnected')
  await until('the conversation is over', () => upstreamSession.ended.aborted)
})

test('an event over the limit fails the call that it answers, if it answers any, and none beside it', async (t) => {
  const waiting: unknown[] = []
  const { url } = await oldServer(t, ({ id, params }, response, stream) => {
    response.writeHead(202).end()
    const { name } = params as { name: string }
    if (name === 'slow') return void waiting.push(id)
    const long = 'x'.repeat(10_000)
    stream.write(`data: {"jsonrpc":"2.0","method":"notifications/message","params":{"data":"${long}"}}\n\n`)
    stream.write(`data: {"jsonrpc":"2.0","id":${String(id)},"result":{"text":"${long}"}}\n\n`)
    for (const other of waiting) stream.write(`data: {"jsonrpc":"2.0","id":${String(other)},"result":{}}\n\n`)
  })
  const upstreamSession = await openSse(sseUpstream(t, url, { maxReply: 4096 }))
  const slow = upstreamSession.exchange(toolCall('slow'))
  await until('the call is under way', () => waiting.length === 1)
  const failed = await upstreamSession.exchange(toolCall('long'))
  assert.ok(failed.kind === 'failed' && failed.error.reason === 'reply_too_large' && failed.error.sent)
  assert.equal((await slow).kind, 'answered')
  assert.equal(upstreamSession.ended.aborted, false)
})
