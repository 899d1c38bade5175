import type { TestContext } from 'node:test'
import type { IncomingHttpHeaders, ServerResponse } from 'node:http'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { once } from 'node:events'
import { text as readText } from 'node:stream/consumers'
import { httpServer } from '../../src/config/schema/server-schema.ts'
import type { Clock } from '../../src/mesh/clock.ts'
import { systemClock } from '../../src/mesh/clock.ts'
import { SessionStates } from '../../src/upstreams/shared/session-state.ts'
import { ModernHttpUpstream } from '../../src/upstreams/modern/modern-http.ts'
import { TaskBinding } from '../../src/upstreams/shared/task-binding.ts'
import { ToolCallRules } from '../../src/upstreams/modern/tool-call-rules.ts'
import { orBrokenOff } from './broken-off.ts'
import { capableClient } from './caller.ts'

/** Returns the wire options of an upstream at `url`, with the config's defaults. */
export function httpOptions(url: string, clock: Clock = systemClock) {
  const config = httpServer.parse({ type: 'http', url })
  const known = { tools: new ToolCallRules(), tasks: new TaskBinding(clock), states: new SessionStates() }
  return { ...config, server: 'test', url, clock, initializeParams: capableClient, ...known }
}

/** An upstream of the modern era at `url`, for the length of a test. */
export function modernUpstream(t: TestContext, url: string, clock: Clock = systemClock): ModernHttpUpstream {
  const upstream = new ModernHttpUpstream(httpOptions(url, clock))
  t.after(() => upstream.close())
  return upstream
}

/** A received request. */
export interface Came {
  readonly method: string | undefined
  readonly headers: IncomingHttpHeaders
  readonly text: string
  readonly body: {
    readonly id?: unknown
    readonly method?: string
    readonly params?: Readonly<Record<string, unknown>> & {
      readonly _meta?: Readonly<Record<string, unknown>>
    }
  }
}

/** Plays a server; unanswered requests stay open. */
export type Play = (came: Came, response: ServerResponse) => void

/** A raw HTTP server on a free port; `came` holds all requests, oldest first. */
export async function rawHttp(t: TestContext, play: Play): Promise<{ url: string; came: Came[] }> {
  const came: Came[] = []
  const server = createServer((request, response) => {
    const taking = readText(request).then((text) => {
      const body = (text === '' ? {} : JSON.parse(text)) as Came['body']
      const one = { method: request.method, headers: request.headers, text, body }
      came.push(one)
      play(one, response)
    })
    orBrokenOff(taking)
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  t.after(() => {
    server.closeAllConnections()
    server.close()
  })
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/mcp`, came }
}

export function json(response: ServerResponse, body: unknown, status = 200): void {
  response.writeHead(status, { 'content-type': 'application/json' })
  response.end(typeof body === 'string' ? body : JSON.stringify(body))
}

/** Begins an event stream. The returned function sends one message. */
export function events(response: ServerResponse): (message: unknown) => void {
  response.writeHead(200, { 'content-type': 'text/event-stream' })
  response.flushHeaders()
  return (message) => void response.write(`data: ${JSON.stringify(message)}\n\n`)
}

/** A result of server/discover. */
export const discovered = {
  supportedVersions: ['2026-07-28'],
  capabilities: {
    tools: { listChanged: true },
    resources: { subscribe: true },
    logging: {},
  },
  instructions: 'hi',
  resultType: 'complete',
  ttlMs: 0,
  cacheScope: 'private',
  _meta: { 'io.modelcontextprotocol/serverInfo': { name: 'raw', version: '1' } },
}

/** Answers server/discover; `play` answers all other requests. */
export function modernServer(t: TestContext, play: Play, initializeResult: object = discovered) {
  return rawHttp(t, (came, response) => {
    if (came.body.method !== 'server/discover') return play(came, response)
    json(response, { jsonrpc: '2.0', id: came.body.id, result: initializeResult })
  })
}
