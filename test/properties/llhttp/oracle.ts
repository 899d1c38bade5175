import { IncomingMessage } from 'node:http'
import { createRequire } from 'node:module'
import type { Socket } from 'node:net'

/** Node's own parser of HTTP/1.1, llhttp, with the settings of `http.createServer` and `http.request`. */

type Headers = readonly string[]

/** The parser as Node's own modules use it; the numbers are the places of callbacks. */
interface Parser {
  [callback: number]: unknown
  initialize(kind: number, resource: object, maxHeaderSize: number, leniency: number): void
  execute(bytes: Buffer): number | Error
  finish(): Error | undefined
}

interface ParserClass {
  new (): Parser
  readonly REQUEST: number
  readonly RESPONSE: number
  readonly kOnMessageBegin: number
  readonly kOnHeaders: number
  readonly kOnHeadersComplete: number
  readonly kOnBody: number
  readonly kOnMessageComplete: number
  readonly kLenientNone: number
}

// `process.binding` would print a warning, and this module prints none on Node 20, 22 and 24.
const { HTTPParser } = createRequire(import.meta.url)('_http_common') as { HTTPParser: ParserClass }

/** The number by which the parser calls the method POST. */
const POST = 3

/** A message as llhttp has read it. */
export interface SeenMessage {
  readonly isPost: boolean
  readonly url: string
  readonly version: string
  readonly status: number
  /** Names and values in turn, as sent. */
  readonly raw: string[]
  /** Fields behind a chunked body. */
  readonly trailers: string[]
  readonly upgrades: boolean
  readonly keepsAlive: boolean
  body: string
  isComplete: boolean
}

/** Reads the bytes of one connection after the other. */
export class Oracle {
  readonly #kind: number
  readonly #parser = new HTTPParser()
  readonly #resource = {}
  /** The messages of the connection, in their order. */
  messages: SeenMessage[] = []
  /** The reason of llhttp for refusing the bytes. */
  error: string | undefined
  /** Fields that have come ahead of the rest: the parser hands out 32 at a time. */
  #fields: string[] = []
  #url = ''

  constructor(kind: 'requests' | 'replies') {
    this.#kind = kind === 'requests' ? HTTPParser.REQUEST : HTTPParser.RESPONSE
    const on = this.#parser
    on[HTTPParser.kOnHeaders] = (fields: Headers, url: string) => {
      this.#fields.push(...fields)
      this.#url += url
    }
    on[HTTPParser.kOnHeadersComplete] = (...head: unknown[]) => this.#begin(head)
    on[HTTPParser.kOnBody] = (bytes: Buffer) => {
      this.messages.at(-1)!.body += bytes.toString('latin1')
    }
    on[HTTPParser.kOnMessageComplete] = () => {
      const message = this.messages.at(-1)!
      message.trailers.push(...this.#fields)
      this.#fields = []
      message.isComplete = true
    }
  }

  /** Begins a new connection. */
  open(): this {
    this.#parser.initialize(this.#kind, this.#resource, 0, HTTPParser.kLenientNone)
    this.messages = []
    this.error = undefined
    this.#fields = []
    this.#url = ''
    return this
  }

  /** Reads more bytes, unless earlier bytes were refused. */
  read(bytes: Buffer): this {
    if (this.error !== undefined || bytes.length === 0) return this
    const result = this.#parser.execute(bytes)
    if (typeof result !== 'number') this.error = reasonOf(result)
    // After an upgrade the parser reads no further.
    else if (result !== bytes.length) this.error = `read ${result} of ${bytes.length} bytes`
    return this
  }

  /** Reads the end of the connection. */
  end(): this {
    if (this.error !== undefined) return this
    const result = this.#parser.finish()
    if (result instanceof Error) this.error = reasonOf(result)
    return this
  }

  #begin(head: unknown[]): number {
    const [major, minor, fields, method, url, status, , upgrades, keepsAlive] = head
    this.messages.push({
      isPost: method === POST,
      url: this.#url + (typeof url === 'string' ? url : ''),
      version: `${String(major)}.${String(minor)}`,
      status: typeof status === 'number' ? status : 0,
      raw: [...this.#fields, ...((fields ?? []) as Headers)],
      trailers: [],
      upgrades: upgrades === true,
      keepsAlive: keepsAlive === true,
      body: '',
      isComplete: false,
    })
    this.#fields = []
    this.#url = ''
    return 0
  }
}

const reasonOf = (error: Error) => ('reason' in error ? String(error.reason) : error.message)

/** Returns the headers as a handler of Node's server sees them. */
export function headersOf(raw: string[]): IncomingMessage['headers'] {
  const message = new IncomingMessage(undefined as unknown as Socket) as IncomingMessage & {
    _addHeaderLines(raw: string[], count: number): void
  }
  message._addHeaderLines(raw, raw.length)
  return message.headers
}
