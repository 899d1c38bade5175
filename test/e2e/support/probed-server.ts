import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http'
import { createServer as createSecureServer } from 'node:https'
import type { AddressInfo } from 'node:net'
import { text } from 'node:stream/consumers'
import { orBrokenOff } from '../../support/broken-off.ts'
import { ownAddress } from '../../support/own-address.ts'
import type { Json } from './gateway.ts'

/** Answers a method in place of the right answer. */
export type Answer = (response: ServerResponse, id: unknown) => void

const open = new Set<ProbedServer>()

/** A server of both eras over Streamable HTTP in this process, which can go away and return at the same address. */
export class ProbedServer {
  readonly asked: string[] = []
  /** Replacement answers by method; `*` is for all methods. */
  readonly answers = new Map<string, Answer>()
  readonly #tls: object | undefined
  #server: Server | undefined
  readonly #host: string
  #port = 0

  private constructor(tls: object | undefined, host: string) {
    this.#tls = tls
    this.#host = host
  }

  /** A certificate is for 127.0.0.1. */
  static async start(
    tls?: object,
    host = tls === undefined ? ownAddress : '127.0.0.1',
  ): Promise<ProbedServer> {
    const server = new ProbedServer(tls, host)
    open.add(server)
    await server.listen()
    return server
  }

  static async endAll(): Promise<void> {
    for (const server of open) await server.kill()
    open.clear()
  }

  get url(): string {
    return `${this.#tls === undefined ? 'http' : 'https'}://${this.#host}:${this.#port}/mcp`
  }

  count(method: string): number {
    return this.asked.filter((asked) => asked === method).length
  }

  /** Listens, on its previous port if there is one. */
  async listen(): Promise<void> {
    const answer = (request: IncomingMessage, response: ServerResponse) =>
      orBrokenOff(text(request).then((body) => this.#answer(request.method, body, response)))
    const server = this.#tls === undefined ? createServer(answer) : createSecureServer(this.#tls, answer)
    this.#server = server
    await new Promise<void>((resolve) => server.listen(this.#port, this.#host, resolve))
    this.#port = (server.address() as AddressInfo).port
  }

  async kill(): Promise<void> {
    const server = this.#server
    this.#server = undefined
    if (server === undefined) return
    const closed = new Promise((resolve) => server.close(resolve))
    server.closeAllConnections()
    await closed
  }

  #answer(verb: string | undefined, body: string, response: ServerResponse): void {
    if (verb !== 'POST') return void response.writeHead(405).end()
    const { id, method, params } = JSON.parse(body) as Json
    this.asked.push(String(method))
    const own = this.answers.get(String(method)) ?? this.answers.get('*')
    if (own !== undefined) return own(response, id)
    if (id === undefined) return void response.writeHead(202).end()
    sendJson(response, { jsonrpc: '2.0', id, ...resultOf(String(method), params as Json | undefined) })
  }
}

export function sendJson(response: ServerResponse, value: unknown, status = 200): void {
  response.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(value))
}

function resultOf(method: string, params: Json | undefined): Json {
  const modern = { resultType: 'complete', ttlMs: 0, cacheScope: 'private' }
  const hello = { capabilities: { tools: {} }, serverInfo: { name: 'probed', version: '1' } }
  const tool = { name: 'check', inputSchema: { type: 'object' }, annotations: { readOnlyHint: true } }
  const results: Record<string, Json> = {
    initialize: { ...hello, protocolVersion: params?.protocolVersion },
    'server/discover': { ...modern, ...hello, supportedVersions: ['2026-07-28'] },
    'tools/list': { ...modern, tools: [tool] },
    'tools/call': { resultType: 'complete', content: [{ type: 'text', text: 'the answer is 42' }] },
    ping: {},
  }
  const result = results[method]
  return result === undefined ? { error: { code: -32601, message: 'Method not found' } } : { result }
}
