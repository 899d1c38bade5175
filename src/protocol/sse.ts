import { Chunks } from './chunks.ts'
import { ENDS, type Overlong } from './overlong.ts'

/** Server-sent events, as the WHATWG HTML standard (section 9.2) frames them. */

export interface SseEvent {
  /** `message` unless the stream named another type. */
  readonly type: string
  readonly data: string
  /** The last event id that the stream set, on this event or before; undefined if none can be resumed behind. */
  readonly id: string | undefined
  /** A reconnection time that came with this event, in milliseconds; 0 … 2^31−1, which is the longest of all timers. */
  readonly retryMs: number | undefined
}

/** Thrown by `feed` when one event is larger than the limit, unless such events are passed over. */
export class SseOverflow extends Error {
  constructor(limit: number) {
    super(`an event is larger than ${limit} bytes`)
  }
}

/** Longest id of an event behind which a stream can be resumed, in characters. */
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
 * An incremental decoder. Feed it chunks as they come; it calls `emit` for every complete event, also for those with an
 * empty `data` that only carry an id or a retry time. Each byte is looked at a few times at most, whatever the chunks are,
 * and comments are kept nowhere.
 */
export class SseDecoder {
  readonly #emit: (event: SseEvent) => unknown
  readonly #limit: number
  /** The chunk that is being read, and how far. */
  #chunk: Buffer = nothing
  #at = 0
  /** Where the next line break of either kind is; the length of the chunk when there is none any more. */
  #nextLf = 0
  #nextCr = 0
  /** A line that has begun; undefined between lines, which is when there are thousands of streams. */
  #partial: Chunks | undefined
  /** How much there is of the comment that has begun, in bytes. */
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
   * `limit`: largest event, in bytes. `emit` returns false to pause: what is left of the chunk waits for `resume`. Where
   * `overlong` is given, it is told of a larger event its id, as `SseEvent` has it, and the ends of its data; the stream goes on behind it.
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

  /** How much there is of the line that has begun, in bytes. */
  get #begun(): number {
    return this.#partial?.length ?? 0
  }

  /** The memory of an event that is not complete, and of a chunk that waits for `resume`, in bytes. */
  get held(): number {
    const waiting = this.#chunk.length - this.#at
    return this.#begun + this.#dataBytes + this.#data.length * LINE_COST + waiting
  }

  /** Reads a chunk, which stays the caller's not to change until it is read. False when `emit` paused in the middle of it. */
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

  /** Goes on after a pause. False when `emit` paused again. */
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

  /** The first line break from `at` on: each kind is looked for again only when the last one found is behind. */
  #lineEnd(at: number): number {
    const chunk = this.#chunk
    if (this.#nextLf < at) this.#nextLf = indexOrEnd(chunk, LF, at)
    if (this.#nextCr < at) this.#nextCr = indexOrEnd(chunk, CR, at)
    return Math.min(this.#nextLf, this.#nextCr)
  }

  /** Takes the line between two places of the chunk, with what came of it before. False when `emit` asks to pause. */
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

  /** `bytes`: how long the line was on the wire. */
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

  /** The event is over the limit: of what there is of it, and of what follows, only the ends are kept. */
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

/** Most that the name of a field takes in front of its value, in bytes. */
const FIELD = 'data: '.length

/** An event over the limit, of which the ends are kept. */
class LongEvent {
  #head = ''
  #tail = ''
  /** As it stands in the event; undefined where it names none. */
  id: string | undefined
  /** Whether there is a gap behind the head. */
  #isCut = false
  /** The ends of the line that has begun, and how long it is, in bytes. */
  #start = nothing
  #end = nothing
  #length = 0

  /** `data`: what there is of it already; `line`: the same of the line that has begun. */
  constructor(data: readonly string[], line: readonly Buffer[]) {
    for (const value of data.slice(0, ENDS)) this.#begin(value, value.length > ENDS)
    this.#isCut ||= data.length > ENDS
    for (const value of data.slice(-ENDS)) this.#goOn(value)
    for (const part of line) this.part(part)
  }

  get ends(): Overlong {
    return { head: this.#head, tail: this.#tail }
  }

  /** A part of a line that goes on. */
  part(bytes: Buffer): void {
    const most = FIELD + ENDS
    if (this.#start.length < most)
      this.#start = Buffer.concat([this.#start, bytes.subarray(0, most - this.#start.length)])
    this.#end = Buffer.concat([this.#end.subarray(-most), bytes.subarray(-most)]).subarray(-most)
    this.#length += bytes.length
  }

  /** The last part of a line. True where the line is empty, with which the event ends. */
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

/** A part of a line that may be long: as a text of its own, for it would keep the whole. */
const shortened = (value: string, from: number, to?: number): string =>
  value.length > ENDS ? Buffer.from(value.slice(from, to), 'utf16le').toString('utf16le') : value

/** The id behind which a stream can be resumed, after a line that names one; `before`: what it was until then. */
function idOf(named: string, before: string | undefined): string | undefined {
  if (named.includes('\0')) return before
  return isResumable(named) ? named : undefined
}

/** Whether an id can be sent back as `Last-Event-ID`: servers refuse long headers, and HTTP itself control characters. */
function isResumable(id: string): boolean {
  return id.length <= LONGEST_ID && !/[\x00-\x08\x0a-\x1f\x7f]/.test(id)
}

function indexOrEnd(chunk: Buffer, byte: number, from: number): number {
  // Where lines are empty the next break is the next byte, and the search is not worth its call.
  if (chunk[from] === byte) return from
  const at = chunk.indexOf(byte, from)
  return at === -1 ? chunk.length : at
}

/** One event on the wire. `data` is JSON: a line break stands between its tokens, where a space is as good and costs no line of its own. */
export function encodeEvent(data: string, id?: string): string {
  const head = id === undefined ? 'event: message\n' : `id: ${id}\nevent: message\n`
  return `${head}data: ${/[\r\n]/.test(data) ? withSpaces(data) : data}\n\n`
}

/** By bytes: a text may have millions of breaks, and to replace them one by one takes seconds. */
function withSpaces(data: string): string {
  const bytes = Buffer.from(data)
  for (let at = 0; at < bytes.length; at++) if (bytes[at] === CR || bytes[at] === LF) bytes[at] = SPACE
  return bytes.toString()
}

/** The bytes of U+FEFF in UTF-8; no line of an event begins with one of them. */
const byteOrderMark: ReadonlySet<number> = new Set([0xef, 0xbb, 0xbf])

/** Finds the ends of events (WHATWG HTML, section 9.2.5): empty lines, each line ended by CR, LF or CRLF. */
export class EventBoundary {
  #isLineEmpty = true
  #isAfterCr = false
  #hasContent = false
  /** Whether a sign of life between two events has begun and not ended. */
  #isComment = false

  /** Between two events: how many bytes at the beginning belong to none, as a byte order mark, empty lines and signs of life do. */
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

  /** Where the event ends, behind its last byte; undefined when it goes on. */
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
