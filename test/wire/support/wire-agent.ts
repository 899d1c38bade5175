import { connect } from 'node:net'
import type { Era } from '../../../src/chaos/fault.ts'
import type { Json } from '../../e2e/support/gateway.ts'
import { headersOf, metaOf } from '../../e2e/support/modern-client.ts'

const elicitation = { elicitation: { form: {} } }

/** One request over its own socket, and its reply. Times are those of `performance.now()`. */
export class Exchange {
  readonly id: number | undefined
  /** The body that was sent. */
  readonly text: string
  /** Just before the first byte left. */
  readonly sentAt = performance.now()
  /** The bytes of each read, heads included. */
  readonly chunks: { readonly at: number; readonly bytes: Buffer }[] = []
  /** `whole` by HTTP's rules, `FIN` or `RST` before that, `left` by the agent; `open` until then. */
  end: 'open' | 'whole' | 'FIN' | 'RST' | 'left' = 'open'
  readonly over: Promise<void>
  #over: () => void = () => undefined
  readonly #socket: ReturnType<typeof connect>
  /** In bytes; undefined until the head has arrived. */
  #headSize: number | undefined
  #size = 0
  /** The size of the body, or `chunks`; undefined when only the end of the connection ends the body. */
  #expected: number | 'chunks' | undefined

  constructor(url: URL, verb: string, headers: Readonly<Record<string, string>>, message?: Json) {
    this.id = message?.id as number | undefined
    this.text = message === undefined ? '' : JSON.stringify(message)
    this.over = new Promise((resolve) => (this.#over = resolve))
    const length = message === undefined ? {} : { 'content-length': String(Buffer.byteLength(this.text)) }
    const lines = Object.entries({ host: url.host, ...headers, ...length }).map(
      ([name, value]) => `${name}: ${value}\r\n`,
    )
    const socket = connect({ port: Number(url.port), host: url.hostname, allowHalfOpen: true }).setNoDelay()
    this.#socket = socket
    socket.on('data', (bytes: Buffer) => {
      this.chunks.push({ at: performance.now(), bytes })
      this.#size += bytes.length
      if (this.#isWhole) this.#finish('whole')
    })
    socket.once('error', () => this.#finish('RST'))
    // To a late reader, a reset right after data looks like an end; only a write tells the two apart.
    socket.once('end', () => socket.write('\r\n', (error) => this.#finish(error ? 'RST' : 'FIN')))
    socket.write(`${verb} ${url.pathname} HTTP/1.1\r\n${lines.join('')}\r\n${this.text}`)
  }

  leave(): void {
    this.#finish('left')
  }

  #finish(how: Exclude<Exchange['end'], 'open'>): void {
    if (this.end !== 'open') return
    this.end = how
    this.#socket.destroy()
    this.#over()
  }

  get #all(): Buffer {
    return Buffer.concat(this.chunks.map(({ bytes }) => bytes))
  }

  get head(): string {
    if (this.#headSize === undefined) {
      const at = this.#all.indexOf('\r\n\r\n')
      if (at !== -1) this.#headSize = at + 4
    }
    return this.#headSize === undefined ? '' : this.#all.subarray(0, this.#headSize).toString('latin1')
  }

  get status(): number | undefined {
    const status = /^HTTP\/1.1 (\d+)/.exec(this.head)?.[1]
    return status === undefined ? undefined : Number(status)
  }

  header(name: string): string | undefined {
    return new RegExp(`^${name}: (.*)\r$`, 'im').exec(this.head)?.[1]
  }

  /** The bytes after the head, as received. */
  get body(): Buffer {
    return this.#all.subarray(this.head.length)
  }

  /** The body's part of each read. */
  get portions(): readonly Buffer[] {
    let head = this.head.length
    return this.chunks.flatMap(({ bytes }) => {
      const rest = bytes.subarray(Math.min(head, bytes.length))
      head -= bytes.length - rest.length
      return rest.length === 0 ? [] : [rest]
    })
  }

  get firstAt(): number {
    return this.chunks[0]?.at ?? NaN
  }

  get lastAt(): number {
    return this.chunks.at(-1)?.at ?? NaN
  }

  get #isWhole(): boolean {
    if (this.#headSize === undefined) this.#expected = expectedOf(this.head)
    if (this.#headSize === undefined) return false
    if (this.#expected === 'chunks') return this.#tail.equals(LAST_CHUNK)
    return this.#size >= this.#headSize + (this.#expected ?? Infinity)
  }

  /** The last bytes, as many as the last chunk of a chunked body has. */
  get #tail(): Buffer {
    const last = this.chunks.slice(-LAST_CHUNK.length).map(({ bytes }) => bytes)
    return Buffer.concat(last).subarray(-LAST_CHUNK.length)
  }

  /** The body without HTTP's chunk framing. */
  get content(): string {
    if (this.header('transfer-encoding') !== 'chunked') return this.body.toString()
    const parts: Buffer[] = []
    for (let rest = this.body; ;) {
      const at = rest.indexOf('\r\n')
      const size = Number.parseInt(rest.subarray(0, Math.max(at, 0)).toString(), 16)
      if (at === -1 || !(size > 0)) return Buffer.concat(parts).toString()
      parts.push(rest.subarray(at + 2, at + 2 + size))
      rest = rest.subarray(at + 4 + size)
    }
  }

  /** The data of its events, or the whole body of other replies. */
  get texts(): readonly string[] {
    if (this.header('content-type')?.startsWith('text/event-stream') !== true)
      return this.content === '' ? [] : [this.content]
    return [...this.content.matchAll(/^data: ?(\S.*)$/gm)].map(([, text = '']) => text)
  }

  /** Messages among the texts, if they are JSON. */
  get messages(): readonly Json[] {
    return this.texts.flatMap((text) => {
      try {
        return [JSON.parse(text) as Json]
      } catch (error) {
        if (error instanceof SyntaxError) return []
        throw error
      }
    })
  }

  get answers(): readonly Json[] {
    return this.messages.filter(({ id, method }) => id === this.id && method === undefined)
  }

  get result(): Json | undefined {
    return this.answers[0]?.result as Json | undefined
  }

  get error(): { readonly code: number; readonly message: string; readonly data?: Json } | undefined {
    return this.answers[0]?.error as ReturnType<() => Exchange['error']>
  }

  get reason(): string | undefined {
    const reason = this.error?.data?.reason
    return typeof reason === 'string' ? reason : undefined
  }
}

const LAST_CHUNK = Buffer.from('0\r\n\r\n')

/** Returns the size of the body announced in the head of a reply. */
function expectedOf(head: string): number | 'chunks' | undefined {
  const length = /^content-length: (\d+)\r$/im.exec(head)?.[1]
  if (length !== undefined) return Number(length)
  if (/^transfer-encoding: chunked\r$/im.test(head)) return 'chunks'
  return /^HTTP\/1.1 20[24] /.test(head) ? 0 : undefined
}

/** An agent on plain sockets, which records everything it gets. */
export class WireAgent {
  readonly era: Era
  /** All requests but the handshake, in order of sending. */
  readonly exchanges: Exchange[] = []
  /** Undefined in the era without handshakes. */
  welcome: Exchange | undefined
  readonly #url: URL
  readonly #own: Readonly<Record<string, string>>
  #session: Readonly<Record<string, string>> = {}
  #ids = 0

  /** `headers`: sent with each request. */
  constructor(url: string, era: Era, headers: Readonly<Record<string, string>> = {}) {
    this.#url = new URL(url)
    this.era = era
    this.#own = headers
  }

  /** Shakes hands, if the era has a handshake. */
  async open(): Promise<void> {
    if (this.era === 'modern') return
    const params = {
      protocolVersion: '2025-11-25',
      capabilities: elicitation,
      clientInfo: { name: 'wire', version: '1' },
    }
    const exchange = this.#post({ jsonrpc: '2.0', id: ++this.#ids, method: 'initialize', params })
    this.welcome = exchange
    await exchange.over
    const session = exchange.header('mcp-session-id')
    if (session === undefined) return
    this.#session = { 'mcp-protocol-version': '2025-11-25', 'mcp-session-id': session }
    await this.#post({ jsonrpc: '2.0', method: 'notifications/initialized' }).over
  }

  /** Sends a request; the exchange's `over` resolves at its end. */
  send(method: string, params: Json = {}): Exchange {
    const _meta = { ...(params._meta as Json | undefined), ...(this.era === 'modern' && metaOf(elicitation)) }
    const message = { jsonrpc: '2.0', id: ++this.#ids, method, params: { ...params, _meta } }
    const exchange = this.#post(message)
    this.exchanges.push(exchange)
    return exchange
  }

  call(name: string, args: Json = { city: 'Oslo', days: [1, 2] }, more: Json = {}): Exchange {
    return this.send('tools/call', { name, arguments: args, ...more })
  }

  /** Answers a server's question, if the question is its own request. */
  async answer(id: unknown): Promise<void> {
    await this.#post({ jsonrpc: '2.0', id, result: { action: 'accept', content: { name: 'Ada' } } }).over
  }

  /** Opens the stream of messages outside requests. */
  listen(): Exchange {
    if (this.era === 'modern')
      return this.send('subscriptions/listen', { notifications: { toolsListChanged: true } })
    const headers = { accept: 'text/event-stream', ...this.#own, ...this.#session }
    const exchange = new Exchange(this.#url, 'GET', headers)
    this.exchanges.push(exchange)
    return exchange
  }

  leave(): void {
    for (const exchange of this.exchanges) exchange.leave()
  }

  #post(message: Json): Exchange {
    const headers = {
      'content-type': 'application/json',
      accept: 'application/json, text/event-stream',
      ...this.#own,
      ...(this.era === 'modern' ? headersOf(message) : this.#session),
    }
    return new Exchange(this.#url, 'POST', headers, message)
  }
}
