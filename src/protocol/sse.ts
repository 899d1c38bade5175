import { Chunks } from './chunks.ts'

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

/** Thrown by `feed` when one event is larger than the limit. */
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

/**
 * An incremental decoder. Feed it chunks as they come; it calls `emit` for every complete event,
 * also for those with an empty `data` that only carry an id or a retry time.
 */
export class SseDecoder {
  readonly #emit: (event: SseEvent) => void
  readonly #limit: number
  /** A line that has begun. */
  readonly #partial = new Chunks()
  #skipLf = false
  #started = false
  #data: string[] = []
  #dataBytes = 0
  #type = ''
  #id: string | undefined
  #retryMs: number | undefined
  #touched = false

  /** `limit`: largest event, in bytes. */
  constructor(limit: number, emit: (event: SseEvent) => void) {
    this.#limit = limit
    this.#emit = emit
  }

  feed(chunk: Buffer): void {
    let at = 0
    if (this.#skipLf && chunk[0] === LF) at = 1
    if (chunk.length > 0) this.#skipLf = false
    for (;;) {
      const end = lineEnd(chunk, at)
      if (end === -1) break
      const bytes = this.#partial.length + end - at
      this.#line(this.#takeLine(chunk.subarray(at, end)), bytes)
      at = end + 1
      if (chunk[end] !== CR) continue
      if (at === chunk.length) this.#skipLf = true
      else if (chunk[at] === LF) at++
    }
    if (at < chunk.length) this.#keep(chunk.subarray(at))
  }

  #keep(rest: Buffer): void {
    if (this.#partial.length + rest.length + this.#dataBytes > this.#limit) throw new SseOverflow(this.#limit)
    this.#partial.add(rest)
  }

  #takeLine(tail: Buffer): string {
    let line: string
    if (this.#partial.length === 0) line = tail.toString('utf8')
    else {
      this.#partial.add(tail)
      line = this.#partial.take()
    }
    if (this.#started) return line
    this.#started = true
    return line.startsWith('\ufeff') ? line.slice(1) : line
  }

  /** `bytes`: how long the line was on the wire. */
  #line(line: string, bytes: number): void {
    if (line === '') return this.#dispatch()
    const colon = line.indexOf(':')
    if (colon === 0) return
    const field = colon === -1 ? line : line.slice(0, colon)
    const value = colon === -1 ? '' : line.slice(line[colon + 1] === ' ' ? colon + 2 : colon + 1)
    switch (field) {
      case 'data':
        this.#dataBytes += bytes
        if (this.#dataBytes > this.#limit) throw new SseOverflow(this.#limit)
        this.#data.push(value)
        break
      case 'event':
        this.#type = value
        break
      case 'id':
        if (!value.includes('\0')) this.#id = isResumable(value) ? value : undefined
        break
      case 'retry':
        if (/^\d+$/.test(value)) this.#retryMs = Math.min(Number(value), MAX_RETRY_MS)
        break
      default:
        return
    }
    this.#touched = true
  }

  #dispatch(): void {
    if (!this.#touched) return
    const event = {
      type: this.#type === '' ? 'message' : this.#type,
      data: this.#data.length === 1 ? (this.#data[0] as string) : this.#data.join('\n'),
      id: this.#id,
      retryMs: this.#retryMs,
    }
    this.#data = []
    this.#dataBytes = 0
    this.#type = ''
    this.#retryMs = undefined
    this.#touched = false
    this.#emit(event)
  }
}

/** Whether an id can be sent back as `Last-Event-ID`: servers refuse long headers, and HTTP itself control characters. */
function isResumable(id: string): boolean {
  return id.length <= LONGEST_ID && !/[\x00-\x08\x0a-\x1f\x7f]/.test(id)
}

function lineEnd(chunk: Buffer, from: number): number {
  const lf = chunk.indexOf(LF, from)
  const cr = chunk.subarray(from, lf === -1 ? chunk.length : lf).indexOf(CR)
  return cr === -1 ? lf : from + cr
}

/** One event on the wire. `data` may hold line breaks. */
export function encodeEvent(data: string, id?: string): string {
  const head = id === undefined ? 'event: message\n' : `id: ${id}\nevent: message\n`
  return `${head}data: ${/[\r\n]/.test(data) ? data.split(/\r\n|\r|\n/).join('\ndata: ') : data}\n\n`
}
