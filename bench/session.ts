import assert from 'node:assert/strict'
import type { Pool } from 'undici'
import { IDEMPOTENCY_KEY } from '../src/policies/idempotency.ts'
import { MODERN_VERSION } from './echo.ts'
import { exchange, streamed } from './exchange.ts'
import type { Reply, Stream } from './exchange.ts'

/** A session-based caller, or a caller with self-contained requests. */
export type Era = 'legacy' | 'modern'

export const LEGACY_VERSION = '2025-06-18'

export const clientInfo = { name: 'bench', version: '1.0.0' }

const meta = {
  'io.modelcontextprotocol/protocolVersion': MODERN_VERSION,
  'io.modelcontextprotocol/clientInfo': clientInfo,
  'io.modelcontextprotocol/clientCapabilities': {},
}

interface Params {
  readonly name?: string
  readonly cursor?: string
  readonly arguments?: object
  readonly _meta?: object
}

export interface Answer {
  readonly id?: unknown
  readonly result?: {
    readonly isError?: boolean
    readonly content?: readonly { readonly text?: string }[]
    readonly tools?: readonly { readonly name: string }[]
    readonly nextCursor?: string
  }
}

/** A caller of a tool, with one call at a time, that checks every byte of the answers. */
export interface Caller {
  /** Calls `tool` under `id`. Throws unless the answer is `text`, then `fill`, under the same id. */
  call(id: number, tool: string, text: string, fill: string): Promise<void>
  close(): Promise<void>
}

/** Throws unless the result is the answer of the upstream's `echo` to the call. */
export function checkEcho({ result }: Answer, id: number, text: string): void {
  assert(result?.isError !== true && result?.content?.length === 1, `call ${id}: not one content block`)
  assert(result.content[0]?.text === text, `call ${id}: not the text that was sent`)
}

/** Throws unless the result lists the tool. */
export function checkListed({ result }: Answer, path: string, tool: string): void {
  assert(
    result?.tools?.some(({ name }) => name === tool),
    `${path} does not list ${tool}`,
  )
}

export class Session implements Caller {
  readonly #pool: Pool
  readonly #path: string
  readonly #era: Era
  readonly #modern = new Map<string, Readonly<Record<string, string>>>()
  readonly #headers: Record<string, string> = {
    'content-type': 'application/json',
    accept: 'application/json, text/event-stream',
  }

  private constructor(pool: Pool, path: string, era: Era) {
    this.#pool = pool
    this.#path = path
    this.#era = era
  }

  static async open(pool: Pool, path: string, tool: string, era: Era): Promise<Session> {
    const session = new Session(pool, path, era)
    if (era === 'legacy') await session.#greet()
    checkListed(await session.#ask('list', 'tools/list', {}), path, tool)
    return session
  }

  /** `key`: the idempotency key of the call, if any. */
  async call(id: number, tool: string, text: string, fill: string, key?: string): Promise<void> {
    const params = {
      name: tool,
      arguments: { text },
      ...(key !== undefined && { _meta: { [IDEMPOTENCY_KEY]: key } }),
    }
    checkEcho(await this.#ask(id, 'tools/call', params), id, text + fill)
  }

  /** Opens the stream outside of calls; `take` gets text as the text arrives. */
  listen(take: (text: string) => void): Promise<Stream> {
    const headers = { ...this.#headers, accept: 'text/event-stream' }
    return streamed(this.#pool, { path: this.#path, method: 'GET', headers }, take)
  }

  /** Calls a tool that reports progress; `take` gets the reply's text as the text arrives. */
  watch(id: number, tool: string, take: (text: string) => void): Promise<Stream> {
    const body = this.#watching(id, tool)
    return streamed(this.#pool, { path: this.#path, method: 'POST', headers: this.#headers, body }, take)
  }

  /** Returns the raw HTTP bytes of `watch` for a call, or else of `listen`, to be sent over a separate connection. */
  raw(call: { readonly id: number; readonly tool: string } | undefined, host: string): string {
    const body = call === undefined ? '' : this.#watching(call.id, call.tool)
    const length = body === '' ? {} : { 'content-length': String(Buffer.byteLength(body)) }
    const accept = body === '' ? { accept: 'text/event-stream' } : {}
    const lines = Object.entries({ host, ...this.#headers, ...accept, ...length })
    const head = lines.map(([name, value]) => `${name}: ${value}\r\n`).join('')
    return `${body === '' ? 'GET' : 'POST'} ${this.#path} HTTP/1.1\r\n${head}\r\n${body}`
  }

  /** Lists tools, page by page. Returns the number of tools. */
  async list(): Promise<number> {
    let [count, cursor] = [0, undefined as string | undefined]
    do {
      const { result } = await this.#ask('list', 'tools/list', cursor === undefined ? {} : { cursor })
      count += result?.tools?.length ?? 0
      cursor = result?.nextCursor
    } while (cursor !== undefined)
    return count
  }

  async close(): Promise<void> {
    if (this.#era === 'modern') return
    const { status } = await exchange(this.#pool, {
      path: this.#path,
      method: 'DELETE',
      headers: this.#headers,
    })
    assert(status === 200 || status === 204, `closing the session: status ${status}`)
  }

  #watching(id: number, tool: string): string {
    const params = { name: tool, arguments: {}, _meta: { progressToken: id } }
    return JSON.stringify({ jsonrpc: '2.0', id, method: 'tools/call', params })
  }

  async #greet(): Promise<void> {
    const params = { protocolVersion: LEGACY_VERSION, capabilities: {}, clientInfo }
    const reply = await this.#post({ jsonrpc: '2.0', id: 'hello', method: 'initialize', params })
    assert(read(reply).result !== undefined, `initialize: no result in ${reply.body}`)
    const id = reply.headers['mcp-session-id']
    if (typeof id === 'string') this.#headers['mcp-session-id'] = id
    this.#headers['mcp-protocol-version'] = LEGACY_VERSION
    const { status } = await this.#post({ jsonrpc: '2.0', method: 'notifications/initialized' })
    assert.equal(status, 202, 'notifications/initialized')
  }

  async #ask(id: string | number, method: string, params: Params): Promise<Answer> {
    const message =
      this.#era === 'legacy'
        ? this.#post({ jsonrpc: '2.0', id, method, params })
        : this.#post(
            { jsonrpc: '2.0', id, method, params: { ...params, _meta: { ...meta, ...params._meta } } },
            this.#mirrored(method, params.name),
          )
    const answer = read(await message)
    assert(answer.id === id, `${method}: asked as ${id}, answered as ${String(answer.id)}`)
    return answer
  }

  #post(message: object, headers: Readonly<Record<string, string>> = this.#headers): Promise<Reply> {
    const body = JSON.stringify(message)
    return exchange(this.#pool, { path: this.#path, method: 'POST', headers, body })
  }

  /** Headers that repeat the body of a modern request; cached, because all calls of a tool share these headers. */
  #mirrored(method: string, name = ''): Readonly<Record<string, string>> {
    const key = `${method} ${name}`
    let headers = this.#modern.get(key)
    if (headers === undefined) {
      const own = { 'mcp-protocol-version': MODERN_VERSION, 'mcp-method': method }
      headers = { ...this.#headers, ...own, ...(name !== '' && { 'mcp-name': name }) }
      this.#modern.set(key, headers)
    }
    return headers
  }
}

function read({ status, headers, body }: Reply): Answer {
  assert(status === 200, `status ${status}: ${body.slice(0, 200)}`)
  const streamed = String(headers['content-type']).startsWith('text/event-stream')
  return JSON.parse(streamed ? lastData(body) : body) as Answer
}

/** The data of the last event: the answer ends the stream. */
function lastData(stream: string): string {
  const line = stream.split('\n').findLast((line) => line.startsWith('data:'))
  assert(line !== undefined, 'a stream without an answer')
  return line.slice('data:'.length)
}
