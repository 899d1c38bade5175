import { connect, type Socket } from 'node:net'

/** Longest wait for a reply, in milliseconds: it only ends a stuck run. */
const PATIENCE_MS = 30_000

/** A request as sent: `headers` in order and spelling, `Host` first unless they name it. */
export interface WireRequest {
  readonly method: string
  readonly path: string
  readonly headers: readonly (readonly [name: string, value: string])[]
  readonly body?: string | undefined
  /** When true, only `headers` can set `Content-Length`; otherwise it is the length of the body, if any. */
  readonly ownLength?: boolean
}

/** A reply as received: headers in the server's order and spelling, the body without chunk framing. */
export interface WireReply {
  readonly status: number
  readonly headers: readonly (readonly [name: string, value: string])[]
  readonly body: string
  /** How the reply ended: complete by HTTP's rules, by the end of the connection, or because the client hung up. */
  readonly end: 'complete' | 'closed' | 'dropped'
}

/** One request on its own connection. Nothing checks the request, so it may be wrong in any way. */
export class WireExchange {
  readonly #socket: Socket
  #bytes = Buffer.alloc(0)
  #closed = false
  #wake: () => void = () => undefined

  /** `address`: host:port. */
  constructor(address: string, { method, path, headers, body, ownLength = false }: WireRequest) {
    const [host = '', port] = address.split(':')
    const named = headers.some(([name]) => name.toLowerCase() === 'host')
    const length: [string, string][] =
      body === undefined || ownLength ? [] : [['content-length', String(Buffer.byteLength(body))]]
    const all = [...(named ? [] : [['host', address] as const]), ...headers, ...length]
    const head = all.map(([name, value]) => `${name}: ${value}\r\n`).join('')
    this.#socket = connect(Number(port), host)
    this.#socket.on('data', (chunk: Buffer) => {
      this.#bytes = Buffer.concat([this.#bytes, chunk])
      this.#wake()
    })
    this.#socket.on('error', () => undefined)
    this.#socket.once('close', () => {
      this.#closed = true
      this.#wake()
    })
    this.#socket.write(`${method} ${path} HTTP/1.1\r\n${head}\r\n${body ?? ''}`)
  }

  /** Waits for `count` events of a stream; returns all events so far, unchanged. */
  async events(count: number): Promise<string[]> {
    const complete = () => this.#read().body.split('\n\n').slice(0, -1)
    await this.#until(`${count} events`, () => complete().length >= count)
    return complete()
  }

  async begun(): Promise<void> {
    await this.#until('the head has come', () => this.#read().status !== 0)
  }

  async end(): Promise<WireReply> {
    await this.#until('the end has come', () => this.#read().end !== undefined)
    this.#socket.destroy()
    const { end = 'closed', ...reply } = this.#read()
    return { ...reply, end }
  }

  /** Hangs up; the reply is everything received so far. */
  drop(): WireReply {
    this.#socket.destroy()
    return { ...this.#read(), end: 'dropped' }
  }

  async #until(what: string, fits: () => boolean): Promise<void> {
    let isLate = false
    const timer = setTimeout(() => {
      isLate = true
      this.#wake()
    }, PATIENCE_MS)
    while (!fits()) {
      if (isLate || this.#read().end !== undefined) {
        const why = isLate ? `not within ${PATIENCE_MS} ms` : 'the reply is over'
        throw new Error(`${what}: ${why}; so far: ${this.#bytes.toString()}`)
      }
      await new Promise<void>((resolve) => (this.#wake = resolve))
    }
    clearTimeout(timer)
  }

  /** Returns the reply so far; `end` is undefined while the reply goes on. */
  #read(): Omit<WireReply, 'end'> & { readonly end: WireReply['end'] | undefined } {
    const closed = this.#closed ? ('closed' as const) : undefined
    const split = this.#bytes.indexOf('\r\n\r\n')
    if (split === -1) return { status: 0, headers: [], body: this.#bytes.toString(), end: closed }
    const [first = '', ...lines] = this.#bytes.subarray(0, split).toString('latin1').split('\r\n')
    const headers = lines.map((line) => {
      const colon = line.indexOf(':')
      return [line.slice(0, colon), line.slice(colon + 1).trim()] as const
    })
    const header = (wanted: string) => headers.find(([name]) => name.toLowerCase() === wanted)?.[1]
    const status = Number(first.split(' ')[1])
    const rest = this.#bytes.subarray(split + 4)
    if (header('transfer-encoding') === 'chunked') {
      const { body, over } = unchunked(rest)
      return { status, headers, body, end: over ? 'complete' : closed }
    }
    const length = status === 204 ? 0 : header('content-length')
    const over = length !== undefined && rest.length >= Number(length)
    return { status, headers, body: rest.toString(), end: over ? 'complete' : closed }
  }
}

/** Returns the body of a chunked message so far, and whether it is complete. */
function unchunked(bytes: Buffer): { body: string; over: boolean } {
  const parts: Buffer[] = []
  for (let at = 0; ;) {
    const line = bytes.indexOf('\r\n', at)
    const size = line === -1 ? NaN : parseInt(bytes.subarray(at, line).toString(), 16)
    const isWhole = line + 2 + size + 2 <= bytes.length
    if (isWhole && size > 0) parts.push(bytes.subarray(line + 2, line + 2 + size))
    if (!isWhole || size === 0) return { body: Buffer.concat(parts).toString(), over: isWhole }
    at = line + 2 + size + 2
  }
}
