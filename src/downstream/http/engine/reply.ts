import { EventEmitter } from 'node:events'
import { STATUS_CODES, validateHeaderName, validateHeaderValue } from 'node:http'
import type { Socket } from 'node:net'
import { chunkSize, LAST_CHUNK } from '../../../wire/http-chunks.ts'
import type { HttpReply } from '../../../wire/http-reply.ts'

/** The parts of a connection that its replies use. */
export interface ReplyCarrier {
  /** True when the connection stays open after a reply whose head is written now. */
  readonly staysOpen: boolean
  /** Returns the lines `Date`, `Connection` and `Keep-Alive` of a reply on a connection that stays open. */
  keptLines(): string
  /** Returns the line `Date`. */
  dateLine(): string
  /** Returns the line `Keep-Alive`. */
  keepAliveLine(): string
  /** Passed to the socket with the last write of a reply; called after the operating system has accepted it. */
  readonly written: (error?: Error | null) => void
  /** Called after each reply has ended. */
  ended(reply: OwnReply): void
}

/** A piece of a reply that waits for earlier replies of its connection. */
interface Piece {
  readonly data: string | Buffer
  readonly encoding: BufferEncoding
}

/** Waiting bytes above this limit make the writer of a reply wait, while earlier replies are open. */
const MOST_WAITING = 16 * 1024

const CLOSES = /(?:^|\W)close(?:$|\W)/i
const CHUNKED = /(?:^|\W)chunked(?:$|\W)/i
const ASCII = /^[\t\x20-\x7e]*$/

/** The names of nearly all replies, which need no check. */
const known: ReadonlySet<string> = new Set([
  'content-type',
  'content-length',
  'mcp-session-id',
  'cache-control',
])

const statusLines = new Map<number, string>()

function statusLine(status: number): string {
  let line = statusLines.get(status)
  if (line !== undefined) return line
  if (!Number.isInteger(status) || status < 200 || status > 999)
    throw new RangeError(`Invalid status code: ${status}`)
  line = `HTTP/1.1 ${status} ${STATUS_CODES[status] ?? 'unknown'}\r\n`
  statusLines.set(status, line)
  return line
}

/**
 * The reply to a request of our own engine. Its bytes and events are those of Node's `ServerResponse`: `finish` after
 * the operating system has accepted the last byte, then `close`; `close` alone when the connection is lost before.
 */
export class OwnReply extends EventEmitter implements HttpReply {
  readonly req: HttpReply['req']
  socket: Socket | null
  destroyed = false
  headersSent = false
  writableEnded = false
  /** True when the connection ends after this reply. */
  isLast = false
  readonly #carrier: ReplyCarrier
  /** The head, until it is written. */
  #head = ''
  #isAscii = true
  #isChunked = false
  #hasBody = true
  #length = -1
  /** The result of the last write to the socket. */
  #takes = true
  #needsDrain = false
  #isCorked = false
  #waiting: Piece[] | undefined
  #waitingBytes = 0

  /** `socket`: null while earlier replies of the connection are open. */
  constructor(req: HttpReply['req'], socket: Socket | null, carrier: ReplyCarrier) {
    super()
    this.req = req
    this.socket = socket
    this.#carrier = carrier
  }

  get writableLength(): number {
    return this.#waitingBytes + (this.socket?.writableLength ?? 0)
  }

  get writableNeedDrain(): boolean {
    return this.#needsDrain && !this.destroyed && !this.writableEnded
  }

  get writableFinished(): boolean {
    return this.writableEnded && this.writableLength === 0
  }

  /**
   * Throws when the head is already made, for a status outside of 200 to 999, and for a name or value that HTTP does not
   * allow.
   */
  writeHead(status: number, headers: Readonly<Record<string, string | number>> = {}): this {
    if (this.headersSent) throw new Error('the head of the reply is already made')
    let head = statusLine(status)
    let [hasConnection, hasDate, hasTransfer, isKeepAliveGiven] = [false, false, false, false]
    for (const name in headers) {
      const value = headers[name]!
      if (!known.has(name)) validateHeaderName(name)
      if (typeof value === 'string') this.#check(name, value)
      head += `${name}: ${value}\r\n`
      // No other name changes the framing or the connection.
      switch (name.toLowerCase()) {
        case 'content-length':
          this.#length = Number(value)
          break
        case 'transfer-encoding':
          hasTransfer = true
          this.#isChunked = CHUNKED.test(String(value))
          break
        case 'connection':
          hasConnection = true
          this.isLast = CLOSES.test(String(value))
          break
        case 'keep-alive':
          isKeepAliveGiven = true
          break
        case 'date':
          hasDate = true
      }
    }
    this.#hasBody = status !== 204 && status !== 304
    const isPlain = !hasConnection && !hasDate && !isKeepAliveGiven
    if (isPlain && this.#carrier.staysOpen) head += this.#carrier.keptLines()
    else {
      if (!hasDate) head += this.#carrier.dateLine()
      if (!hasConnection) {
        this.isLast = !this.#carrier.staysOpen
        head += this.isLast ? 'Connection: close\r\n' : 'Connection: keep-alive\r\n'
        if (!this.isLast && !isKeepAliveGiven) head += this.#carrier.keepAliveLine()
      }
    }
    if (!this.#hasBody) this.#isChunked = false
    else if (this.#length === -1 && !hasTransfer) {
      head += 'Transfer-Encoding: chunked\r\n'
      this.#isChunked = true
    }
    this.#head = `${head}\r\n`
    this.headersSent = true
    return this
  }

  #check(name: string, value: string): void {
    if (ASCII.test(value)) return
    validateHeaderValue(name, value)
    this.#isAscii = false
  }

  flushHeaders(): void {
    if (!this.headersSent) this.writeHead(200)
    if (this.#head !== '') this.#put(this.#takeHead(), 'latin1')
  }

  write(chunk: string | Buffer): boolean {
    if (this.writableEnded || this.destroyed) return false
    if (!this.headersSent) this.writeHead(200)
    const { socket } = this
    // Sends all writes of a tick in one system call, as Node does.
    if (socket !== null && socket.writableCorked === 0) {
      socket.cork()
      process.nextTick(uncork, socket)
    }
    this.#putBody(chunk, false)
    const takesMore = socket === null ? this.#waitingBytes < MOST_WAITING : this.#takes
    if (!takesMore) this.#needsDrain = true
    return takesMore
  }

  end(chunk: string | Buffer = ''): this {
    if (this.writableEnded) return this
    if (!this.headersSent && !this.destroyed) this.writeHead(200)
    this.writableEnded = true
    if (this.destroyed) return this
    this.#putBody(chunk, true)
    const { socket } = this
    if (socket !== null) while (socket.writableCorked > 0) socket.uncork()
    this.#carrier.ended(this)
    return this
  }

  /** Writes a piece of the body with its framing, after the head if the head is not written. */
  #putBody(chunk: string | Buffer, isEnd: boolean): void {
    if (!this.#hasBody) chunk = ''
    const isChunked = this.#isChunked
    if (typeof chunk === 'string') {
      const head = this.#takeHead()
      if (!isChunked) {
        // A declared length equal to the number of characters means ASCII, and Latin-1 is written several times faster.
        const isAscii = this.#isAscii && this.#length === chunk.length
        const text = head + chunk
        if (text !== '' || isEnd) this.#put(text, isAscii ? 'latin1' : 'utf8', isEnd)
        return
      }
      const framed = chunk === '' ? '' : `${chunkSize(Buffer.byteLength(chunk))}${chunk}\r\n`
      const text = head + framed + (isEnd ? LAST_CHUNK : '')
      if (text !== '' || isEnd) this.#put(text, 'utf8', isEnd)
      return
    }
    const { socket } = this
    socket?.cork()
    const before = this.#takeHead() + (isChunked && chunk.length > 0 ? chunkSize(chunk.length) : '')
    const after = isChunked ? (chunk.length > 0 ? '\r\n' : '') + (isEnd ? LAST_CHUNK : '') : ''
    if (before !== '') this.#put(before, 'latin1')
    if (chunk.length > 0 || (isEnd && after === '')) this.#put(chunk, 'latin1', isEnd && after === '')
    if (after !== '') this.#put(after, 'latin1', isEnd)
    socket?.uncork()
  }

  #takeHead(): string {
    const head = this.#head
    this.#head = ''
    return head
  }

  #put(data: string | Buffer, encoding: BufferEncoding, isEnd = false): void {
    const { socket } = this
    if (socket === null) {
      this.#waiting ??= []
      this.#waiting.push({ data, encoding })
      this.#waitingBytes += data.length
    } else if (socket.writable) {
      // The socket is closing otherwise, and `close` follows.
      this.#takes = isEnd ? socket.write(data, encoding, this.#carrier.written) : socket.write(data, encoding)
    }
  }

  cork(): void {
    if (this.#isCorked || this.socket === null) return
    this.#isCorked = true
    this.socket.cork()
  }

  /** Gives the connection to this reply, after all earlier replies, and writes the waiting pieces. */
  takeSocket(socket: Socket): void {
    this.socket = socket
    this.emit('socket', socket)
    const pieces = this.#waiting
    if (pieces === undefined || this.destroyed) return
    this.#waiting = undefined
    this.#waitingBytes = 0
    socket.cork()
    pieces.forEach(({ data, encoding }, index) =>
      this.#put(data, encoding, this.writableEnded && index === pieces.length - 1),
    )
    socket.uncork()
    if (!socket.writableNeedDrain) this.drained()
  }

  /** Called when the connection accepts more. */
  drained(): void {
    this.#takes = true
    if (!this.writableNeedDrain) return
    this.#needsDrain = false
    this.emit('drain')
  }

  /** Called after the operating system has accepted the last byte. */
  finished(): void {
    this.emit('finish')
    this.socket = null
  }

  /** Called once, after `finished` or when the connection has closed. */
  closed(): void {
    this.destroyed = true
    this.emit('close')
  }

  /** Closes the connection; a reply that waits for earlier replies closes it too. */
  destroy(): this {
    this.destroyed = true
    this.req.socket.destroy()
    return this
  }
}

const uncork = (socket: Socket) => socket.uncork()
