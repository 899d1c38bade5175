import { Chunks } from './chunks.ts'
import { ENDS, type Overlong } from './overlong.ts'

/** Server-sent events, as framed by the WHATWG HTML standard (section 9.2). */

export interface SseEvent {
  /** `message` unless the stream named another type. */
  readonly type: string
  readonly data: string
  /**
   * The last event id set by the stream, on this event or before. Undefined if the stream cannot be resumed after this
   * event.
   */
  readonly id: string | undefined
  /** A reconnection time that came with this event, in milliseconds; 0 … 2^31−1, the longest delay of a timer. */
  readonly retryMs: number | undefined
}

/** Thrown by `feed` when an event exceeds the limit and the decoder has no `overlong` callback. */
export class SseOverflow extends Error {
  constructor(limit: number) {
    super(`an event is larger than ${limit} bytes`)
  }
}

/** Longest event id with which a stream can be resumed, in characters. */
const LONGEST_ID = 2_048

const MAX_RETRY_MS = 2 ** 31 - 1

const LF = 0x0a
const CR = 0x0d
const SPACE = 0x20
const COLON = 0x3a

/** The cost of a line of `data` besides its bytes, in bytes: a server may make each line one character long. */
const LINE_COST = 32

const nothing = Buffer.alloc(0)

/**
 * An incremental decoder of server-sent events. Feed chunks as they come. `emit` gets every complete event, even with
 * an empty `data` and only an id or a retry time. Examines each byte at most a few times, even in tiny chunks, and
 * never buffers comments.
 */
export class SseDecoder {
  readonly #emit: (event: SseEvent) => unknown
  readonly #limit: number
  /** The chunk being read, and the position in the chunk. */
  #chunk: Buffer = nothing
  #at = 0
  /** Positions of the next line breaks of either kind; the length of the chunk when none is left. */
  #nextLf = 0
  #nextCr = 0
  /** Buffer of an incomplete line. Undefined between lines: thousands of streams may be idle, and need no buffer. */
  #partial: Chunks | undefined
  /** Length so far of an incomplete comment, in bytes. */
  #comment = 0
  #skipLf = false
  #started = false
  #data: string[] = []
  #dataBytes = 0
  #type = ''
  #id: string | undefined
  #retryMs: number | undefined
  #touched = false
  readonly #overlong: ((id: string | undefined, ends: Overlong) => void) | undefined
  /** An event over the limit that has not ended. */
  #long: LongEvent | undefined

  /**
   * `limit`: largest event, in bytes. `emit` returns false to pause: the rest of the chunk waits for `resume`.
   * `overlong`, if given, gets the id of a larger event (as in `SseEvent`) and both ends of its data; decoding
   * continues with the next event.
   */
  constructor(
    limit: number,
    emit: (event: SseEvent) => unknown,
    overlong?: (id: string | undefined, ends: Overlong) => void,
  ) {
    this.#limit = limit
    this.#emit = emit
    this.#overlong = overlong
  }

  /** Length so far of the incomplete line, in bytes. */
  get #begun(): number {
    return this.#partial?.length ?? 0
  }

  /** Memory of an incomplete event, and of a chunk that waits for `resume`, in bytes. */
  get held(): number {
    const waiting = this.#chunk.length - this.#at
    return this.#begun + this.#dataBytes + this.#data.length * LINE_COST + waiting
  }

  /** Reads a chunk, which must not change until it is read. Returns false when `emit` paused inside the chunk. */
  feed(chunk: Buffer): boolean {
    if (chunk.length === 0) return true
    if (this.#chunk.length > 0) {
      this.#chunk = Buffer.concat([this.#chunk.subarray(this.#at), chunk])
      this.#at = 0
      this.#nextLf = this.#nextCr = -1
      return false
    }
    this.#chunk = chunk
    this.#at = this.#skipLf && chunk[0] === LF ? 1 : 0
    this.#skipLf = false
    this.#nextLf = this.#nextCr = -1
    return this.resume()
  }

  /** Continues after a pause. Returns false when `emit` paused again. */
  resume(): boolean {
    const chunk = this.#chunk
    for (let at = this.#at; ;) {
      const end = this.#lineEnd(at)
      if (end === chunk.length) {
        this.#chunk = nothing
        this.#at = 0
        if (at < end) this.#keep(chunk.subarray(at))
        return true
      }
      const start = at
      at = end + 1
      if (chunk[end] === CR) {
        if (at === chunk.length) this.#skipLf = true
        else if (chunk[at] === LF) at++
      }
      this.#at = at
      if (this.#completes(start, end)) continue
      if (at < chunk.length) return false
      this.#chunk = nothing
      return true
    }
  }

  /**
   * Returns the position of the first line break from `at` on. Searches again for CR or LF only when its known position
   * lies before `at`.
   */
  #lineEnd(at: number): number {
    const chunk = this.#chunk
    if (this.#nextLf < at) this.#nextLf = indexOrEnd(chunk, LF, at)
    if (this.#nextCr < at) this.#nextCr = indexOrEnd(chunk, CR, at)
    return Math.min(this.#nextLf, this.#nextCr)
  }

  /**
   * Processes the line between two positions of the chunk, after any buffered first part of the line. Returns false
   * when `emit` pauses.
   */
  #completes(start: number, end: number): boolean {
    const chunk = this.#chunk
    if (this.#long !== undefined) {
      if (this.#long.line(chunk.subarray(start, end))) this.#endLong(this.#long)
      return true
    }
    const begun = this.#begun
    const bytes = begun + end - start
    if (this.#comment > 0 || (bytes > 0 && begun === 0 && chunk[start] === COLON)) {
      this.#comment = 0
      this.#started = true
      return true
    }
    if (bytes === 0) {
      this.#started = true
      return this.#dispatch()
    }
    return this.#line(this.#takeLine(chunk.subarray(start, end)), bytes)
  }

  #keep(rest: Buffer): void {
    if (this.#comment > 0 || (this.#begun === 0 && this.#long === undefined && rest[0] === COLON)) {
      this.#comment += rest.length
      return
    }
    if (this.#long === undefined && this.#begun + rest.length + this.#dataBytes > this.#limit)
      this.#passOver()
    if (this.#long !== undefined) this.#long.part(rest)
    else (this.#partial ??= new Chunks()).add(rest)
  }

  #takeLine(tail: Buffer): string {
    let line: string
    if (this.#partial === undefined) line = tail.toString('utf8')
    else {
      this.#partial.add(tail)
      line = this.#partial.take()
      this.#partial = undefined
    }
    if (this.#started) return line
    this.#started = true
    return line.startsWith('\ufeff') ? line.slice(1) : line
  }

  /** `bytes`: length of the line on the wire. */
  #line(line: string, bytes: number): boolean {
    if (line === '') return this.#dispatch()
    const colon = line.indexOf(':')
    if (colon === 0) return true
    const field = colon === -1 ? line : line.slice(0, colon)
    const value = colon === -1 ? '' : line.slice(line[colon + 1] === ' ' ? colon + 2 : colon + 1)
    switch (field) {
      case 'data':
        this.#dataBytes += bytes
        this.#data.push(value)
        if (this.#dataBytes <= this.#limit) break
        this.#passOver()
        return true
      case 'event':
        this.#type = value
        break
      case 'id':
        this.#id = idOf(value, this.#id)
        break
      case 'retry':
        if (/^\d+$/.test(value)) this.#retryMs = Math.min(Number(value), MAX_RETRY_MS)
        break
      default:
        return true
    }
    this.#touched = true
    return true
  }

  #dispatch(): boolean {
    if (!this.#touched) return true
    const event = {
      type: this.#type === '' ? 'message' : this.#type,
      data: this.#data.length === 1 ? (this.#data[0] as string) : this.#data.join('\n'),
      id: this.#id,
      retryMs: this.#retryMs,
    }
    this.#forget()
    return this.#emit(event) !== false
  }

  #forget(): void {
    this.#data = []
    this.#dataBytes = 0
    this.#type = ''
    this.#retryMs = undefined
    this.#touched = false
  }

  /** Starts to drop an event over the limit: only its two ends are kept. */
  #passOver(): void {
    if (this.#overlong === undefined) throw new SseOverflow(this.#limit)
    this.#long = new LongEvent(this.#data, this.#partial?.takeChunks() ?? [])
    this.#partial = undefined
    this.#forget()
  }

  #endLong(long: LongEvent): void {
    this.#long = undefined
    if (long.id !== undefined) this.#id = idOf(long.id, this.#id)
    this.#overlong?.(this.#id, long.ends)
  }
}

/** Longest field name in front of a value, in bytes. */
const FIELD = 'data: '.length

/** An event over the limit; only its ends are kept. */
class LongEvent {
  #head = ''
  #tail = ''
  /** The id as written in the event; undefined without an id. */
  id: string | undefined
  /** Whether text is missing behind the head. */
  #isCut = false
  /** Both ends of the incomplete line, and its length in bytes. */
  #start = nothing
  #end = nothing
  #length = 0

  /** `data`: lines read so far; `line`: the parts of the incomplete line. */
  constructor(data: readonly string[], line: readonly Buffer[]) {
    for (const value of data.slice(0, ENDS)) this.#begin(value, value.length > ENDS)
    this.#isCut ||= data.length > ENDS
    for (const value of data.slice(-ENDS)) this.#goOn(value)
    for (const part of line) this.part(part)
  }

  get ends(): Overlong {
    return { head: this.#head, tail: this.#tail }
  }

  /** Adds a part of a line that is not complete yet. */
  part(bytes: Buffer): void {
    const most = FIELD + ENDS
    if (this.#start.length < most)
      this.#start = Buffer.concat([this.#start, bytes.subarray(0, most - this.#start.length)])
    this.#end = Buffer.concat([this.#end.subarray(-most), bytes.subarray(-most)]).subarray(-most)
    this.#length += bytes.length
  }

  /** Adds the last part of a line. Returns true for an empty line, which ends the event. */
  line(bytes: Buffer): boolean {
    this.part(bytes)
    if (this.#length === 0) return true
    const isLong = this.#length > FIELD + ENDS
    const [, field, value = ''] = /^(data|id)(?:: ?(.*))?$/s.exec(this.#start.toString()) ?? []
    if (field === 'data') {
      this.#begin(value, isLong)
      this.#goOn(isLong ? this.#end.toString() : value)
    } else if (field === 'id' && !isLong) this.id = value
    this.#start = this.#end = nothing
    this.#length = 0
    return false
  }

  #begin(value: string, isCut: boolean): void {
    if (this.#isCut || this.#head.length >= ENDS) return
    this.#head = `${this.#head}${shortened(value, 0, ENDS)}\n`.slice(0, ENDS)
    this.#isCut = isCut
  }

  #goOn(value: string): void {
    this.#tail = `${this.#tail}\n${shortened(value, -ENDS)}`.slice(-ENDS)
  }
}

/** Returns a part of a line as a text of its own: a slice would keep the whole line in memory. */
const shortened = (value: string, from: number, to?: number): string =>
  value.length > ENDS ? Buffer.from(value.slice(from, to), 'utf16le').toString('utf16le') : value

/**
 * Returns the event id after an `id` line with the value `named`; undefined if no stream can be resumed with this id.
 * `before`: the previous id, which stays if `named` contains NUL.
 */
function idOf(named: string, before: string | undefined): string | undefined {
  if (named.includes('\0')) return before
  return isResumable(named) ? named : undefined
}

/** Whether an id can be sent as `Last-Event-ID`: servers refuse long headers, HTTP forbids control characters. */
function isResumable(id: string): boolean {
  return id.length <= LONGEST_ID && !/[\x00-\x08\x0a-\x1f\x7f]/.test(id)
}

function indexOrEnd(chunk: Buffer, byte: number, from: number): number {
  // At an empty line, the next break is the next byte, and this comparison costs less than a search.
  if (chunk[from] === byte) return from
  const at = chunk.indexOf(byte, from)
  return at === -1 ? chunk.length : at
}

/**
 * Encodes an event with JSON in `data`. Line breaks, which JSON has only between tokens, become spaces, so one `data`
 * line is enough.
 */
export function encodeEvent(data: string, id?: string): string {
  const head = id === undefined ? 'event: message\n' : `id: ${id}\nevent: message\n`
  return `${head}data: ${/[\r\n]/.test(data) ? withSpaces(data) : data}\n\n`
}

/**
 * Replaces line breaks by spaces. Works on bytes: a text may have millions of breaks, and replacing each in a string
 * takes seconds.
 */
function withSpaces(data: string): string {
  const bytes = Buffer.from(data)
  for (let at = 0; at < bytes.length; at++) if (bytes[at] === CR || bytes[at] === LF) bytes[at] = SPACE
  return bytes.toString()
}

/** The bytes of U+FEFF in UTF-8; no line of an event begins with any of these bytes. */
const byteOrderMark: ReadonlySet<number> = new Set([0xef, 0xbb, 0xbf])

/** Finds the ends of events (WHATWG HTML, section 9.2.5). An empty line ends an event; CR, LF or CRLF ends a line. */
export class EventBoundary {
  #isLineEmpty = true
  #isAfterCr = false
  #hasContent = false
  /** Whether a comment between two events (a keep-alive) has begun and not ended. */
  #isComment = false

  /** Returns how many leading bytes between two events belong to no event: a byte order mark, empty lines, comments. */
  idle(bytes: Buffer): number {
    for (let at = 0; at < bytes.length; at++) {
      const byte = bytes[at] as number
      const isEnd = byte === CR || byte === LF
      if (this.#isComment) this.#isComment = !isEnd
      else if (byte === COLON) this.#isComment = true
      else if (!isEnd && !byteOrderMark.has(byte)) return at
    }
    return bytes.length
  }

  /** Returns the position behind the event's last byte; undefined when the event is not complete yet. */
  find(bytes: Buffer): number | undefined {
    for (let at = 0; at < bytes.length; at++) {
      const byte = bytes[at]
      const isSecondHalf = byte === LF && this.#isAfterCr
      this.#isAfterCr = byte === CR
      if (isSecondHalf) continue
      if (byte !== CR && byte !== LF) {
        this.#isLineEmpty = false
        this.#hasContent = true
        continue
      }
      const isEnd = this.#isLineEmpty && this.#hasContent
      this.#isLineEmpty = true
      if (!isEnd) continue
      this.#hasContent = false
      if (byte === CR && bytes[at + 1] === LF) {
        this.#isAfterCr = false
        return at + 2
      }
      return at + 1
    }
    return undefined
  }
}
