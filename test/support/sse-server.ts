import assert from 'node:assert/strict'
import { once } from 'node:events'
import { createServer, type IncomingMessage, type RequestListener, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { text } from 'node:stream/consumers'
import type { TestContext } from 'node:test'
import { httpServer } from '../../src/config/schema/server-schema.ts'
import { systemClock } from '../../src/mesh/clock.ts'
import { SseUpstream } from '../../src/upstreams/sse/sse.ts'
import { orBrokenOff } from './broken-off.ts'
import { TestCaller } from './caller.ts'
import { silent } from './log.ts'

/** The server's answer to `initialize`. */
export const welcome =
  '{"protocolVersion":"2024-11-05","capabilities":{},"serverInfo":{"name":"old","version":"1"}}'

/** Serves HTTP for the length of a test. Returns the URL of the event stream. */
export async function listen(t: TestContext, handle: RequestListener): Promise<string> {
  const server = createServer(handle).listen(0, '127.0.0.1')
  await once(server, 'listening')
  t.after(() => {
    server.close()
    server.closeAllConnections()
  })
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}/sse`
}

/** An upstream of the server, closed after the test. */
export function sseUpstream(
  t: TestContext,
  url: string,
  settings: Record<string, unknown> = {},
): SseUpstream {
  const config = httpServer.parse({ type: 'sse', urls: [url], ...settings })
  const upstream = new SseUpstream({ server: 'test', config, url, clock: systemClock, log: silent })
  t.after(() => upstream.close())
  return upstream
}

/** Opens a conversation. */
export const openSse = (upstream: SseUpstream, signal = new AbortController().signal) =>
  upstream.open(new TestCaller(), signal)

/** A server that shakes hands; the test answers every other message. */
export async function oldServer(
  t: TestContext,
  take: (message: Record<string, unknown>, response: ServerResponse, stream: ServerResponse) => void,
) {
  const requests: IncomingMessage[] = []
  let stream: ServerResponse | undefined
  const url = await listen(t, (request, response) => {
    requests.push(request)
    if (request.method === 'GET') {
      stream = response.writeHead(200, { 'content-type': 'text/event-stream; charset=utf-8' })
      return void stream.write('event: endpoint\r\ndata: /messages?session=1\r\n\r\n')
    }
    const taking = text(request).then((body) => {
      const message = JSON.parse(body) as Record<string, unknown>
      if (message.method !== 'initialize' && message.id !== undefined) {
        return take(message, response, stream ?? assert.fail())
      }
      response.writeHead(202).end('Accepted')
      if (message.id !== undefined)
        stream?.write(`data: {"jsonrpc":"2.0","id":${String(message.id)},"result":${welcome}}\n\n`)
    })
    orBrokenOff(taking)
  })
  return { url, requests, stream: () => stream ?? assert.fail() }
}
