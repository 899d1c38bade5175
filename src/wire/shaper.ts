import type { Cancel, Millis } from '../mesh/clock.ts'
import type { WireIncident, WireShape } from '../mesh/wire-shape.ts'
import { type FramedPiece, HttpFraming } from './http-framing.ts'
import { isObject, parseJson } from '../protocol/jsonrpc.ts'
import { EventBoundary, SseDecoder } from '../protocol/sse.ts'

/** The target of a shaped reply's bytes: `shaped-connection` for servers' replies, `shaped-reply` towards agents. */
export interface WireEnd {
  /** Passes bytes; calls `passed` once the bytes are out. An empty chunk comes only with `passed`. */
  pass(bytes: Buffer, passed?: () => void): void
  /** Resets the connection after all passed bytes. */
  reset(): void
  /** Closes the connection after all passed bytes. */
  close(): void
}

/** A piece of a reply, with a callback for when the piece is out. */
interface Piece extends FramedPiece {
  readonly passed?: (() => void) | undefined
}

/** Time for a peer to read the bytes before a reset, in milliseconds. */
const READ_MS: Millis = 20

/** Longest event held back until complete, in bytes and in pieces; a longer event is judged by its beginning. */
const LONGEST_EVENT = 1024 ** 2
const MOST_PIECES = 16 * 1024

/** Bytes of a long event examined to classify the event. */
const BEGINNING = 4_096

/** How far ahead the first word of a body is searched per step, in bytes. */
const NEAR = 512

/**
 * Passes the bytes of one HTTP/1.1 reply as a fault demands: in small portions, cut off, garbled or late. Cuts at exact
 * byte counts, even within a character. The framing bytes around the body pass without being counted.
 */
export class WireShaper {
  readonly #shape: WireShape
  readonly #end: WireEnd
  readonly #framing = new HttpFraming()
  /** Waiting pieces: the next pieces in reverse order, the pieces behind them, and their total size in bytes. */
  #queue: Piece[] = []
  #arrived: Piece[] = []
  #waiting = 0
  /** Pieces to pass together, usually of one chunk. */
  #passing: Buffer | undefined
  /** Pieces of an incomplete event. */
  #event: Piece[] = []
  #eventBytes = 0
  /** An event too long to hold back, now passing. */
  #longEvent: { readonly isMessage: boolean } | undefined
  readonly #boundary = new EventBoundary()
  /** Ends a wait; undefined without a wait. */
  #endWait: (() => void) | undefined
  /** Bytes left in the current portion. */
  #room: number
  /** Planned start of the current portion, on the clock of the shape; undefined before the first portion. */
  #dueAt: Millis | undefined
  readonly #cancelLatest: Cancel | undefined
  #isRunning = false
  #hasEnded = false
  #isOver = false

  constructor(shape: WireShape, end: WireEnd) {
    this.#shape = shape
    this.#end = end
    this.#room = shape.pace?.bytes ?? 0
    // A call may be sent several times, for example after a lost session: each reply counts from 0.
    if (!shape.done.hasHappened) Object.assign(shape.done, { bytes: 0, messages: 0 })
    shape.released.addEventListener('abort', this.#release)
    const latestMs = shape.incident?.latestMs
    if (latestMs !== undefined)
      this.#cancelLatest = shape.clock.after(latestMs, () => this.#happen(shape.incident as WireIncident))
  }

  /** Bytes waiting to pass. */
  get waiting(): number {
    // Pieces of an incomplete event can pass only when more bytes come.
    return this.#waiting - this.#eventBytes
  }

  /** Takes bytes of the reply; calls `passed` once the last byte is out. */
  pass(chunk: Buffer, passed?: () => void): void {
    if (this.#isOver) return
    this.#waiting += chunk.length
    const pieces = this.#framing.split(chunk)
    const last = pieces.pop() ?? { bytes: chunk, isBody: false }
    for (const piece of pieces) this.#arrived.push(piece)
    this.#arrived.push({ ...last, passed })
    this.#run()
  }

  /** Ends the connection behind all bytes so far. */
  end(): void {
    this.#hasEnded = true
    this.#run()
  }

  /** Stops: passes nothing more and calls no callbacks. */
  stop(): void {
    if (this.#isOver) return
    this.#isOver = true
    this.#shape.over?.()
    this.#endWait?.()
    this.#cancelLatest?.()
    this.#shape.released.removeEventListener('abort', this.#release)
    this.#event = []
    this.#queue = []
    this.#arrived = []
    this.#waiting = 0
    this.#passing = undefined
  }

  /** The pending incident; undefined once the fault is lifted. */
  get #due(): WireIncident | undefined {
    const { incident, done, released } = this.#shape
    return done.hasHappened || released.aborted ? undefined : incident
  }

  readonly #release = (): void => {
    this.#endWait?.()
    this.#cancelLatest?.()
    this.#putBack()
    this.#run()
  }

  /** Puts a held event back in front of later bytes. */
  #putBack(): void {
    const event = this.#event
    this.#event = []
    this.#eventBytes = 0
    for (let at = event.length - 1; at >= 0; at--) this.#queue.push(event[at] as Piece)
  }

  #run(): void {
    // A `passed` callback may bring more bytes at once, which must wait behind earlier bytes.
    if (this.#isRunning) return
    this.#isRunning = true
    try {
      while (this.#endWait === undefined && !this.#isOver) {
        if (this.#queue.length === 0) [this.#queue, this.#arrived] = [this.#arrived.reverse(), []]
        const piece = this.#queue.pop()
        if (piece === undefined) break
        this.#take(piece)
      }
      this.#flush()
    } finally {
      this.#isRunning = false
    }
    if (
      !this.#hasEnded ||
      this.#isOver ||
      this.#endWait !== undefined ||
      this.#queue.length + this.#arrived.length > 0
    )
      return
    this.#passEvent()
    this.#finish(() => this.#end.close())
  }

  #take(piece: Piece): void {
    const due = this.#due
    if (due?.at === 'head') return this.#before(due, piece)
    if (!piece.isBody) return this.#around(piece)
    if (due === undefined) return this.#passPaced(piece)
    if ('bytes' in (due.at as object)) return this.#towards(due, (due.at as { bytes: number }).bytes, piece)
    return this.#ofMessages(due, (due.at as { messages: number }).messages, piece)
  }

  /** Passes framing bytes; inside of a held event, they stay with the event. */
  #around(piece: Piece): void {
    if (this.#eventBytes === 0) return this.#pass(piece)
    this.#event.push(piece)
    this.#eventBytes += piece.bytes.length
  }

  /** Passes the bytes up to the incident; the incident happens when more bytes follow. */
  #towards(incident: WireIncident, limit: number, piece: Piece): void {
    const left = limit - this.#shape.done.bytes
    if (piece.bytes.length <= left) return this.#passPaced(piece)
    if (left > 0) this.#passPaced({ bytes: piece.bytes.subarray(0, left), isBody: true })
    this.#before(incident, { ...piece, bytes: piece.bytes.subarray(Math.max(0, left)) })
  }

  #ofMessages(incident: WireIncident, limit: number, piece: Piece): void {
    if (!this.#framing.isEventStream)
      return /\S/.test(piece.bytes.toString('latin1', 0, NEAR))
        ? this.#before(incident, piece)
        : this.#pass(piece)
    const { done } = this.#shape
    const isWithin = this.#eventBytes > 0 || this.#longEvent !== undefined
    const idle = isWithin ? 0 : this.#boundary.idle(piece.bytes)
    if (idle > 0) return this.#part(piece, idle)
    const at = this.#boundary.find(piece.bytes)
    const isWhole = at !== undefined
    const size = at ?? piece.bytes.length
    if (this.#longEvent !== undefined) {
      const { isMessage } = this.#longEvent
      if (isWhole) this.#longEvent = undefined
      this.#part(piece, size)
      return isWhole && isMessage ? this.#behindMessage(incident, limit) : undefined
    }
    const isAll = size === piece.bytes.length
    this.#event.push(isAll ? piece : { bytes: piece.bytes.subarray(0, size), isBody: true })
    this.#eventBytes += size
    if (!isAll) this.#queue.push({ ...piece, bytes: piece.bytes.subarray(size) })
    if (!isWhole && this.#eventBytes <= LONGEST_EVENT && this.#event.length <= MOST_PIECES) return
    const kind = isWhole ? messageIn(bodyOf(this.#event)) : messageBegunBy(bodyOf(this.#event, BEGINNING))
    if (kind !== undefined && (kind === 'response' || done.messages >= limit)) {
      if (incident.kind === 'garble') this.#event = garbled(this.#event)
      this.#putBack()
      return this.#happen(incident)
    }
    const isMessage = kind !== undefined
    if (isMessage) done.messages++
    this.#passEvent()
    if (!isWhole) this.#longEvent = { isMessage }
    else if (isMessage) this.#behindMessage(incident, limit)
  }

  /** Lets the incident happen right behind the last allowed message, unless the incident garbles a message. */
  #behindMessage(incident: WireIncident, limit: number): void {
    if (this.#shape.done.messages >= limit && incident.kind !== 'garble') this.#happen(incident)
  }

  /** Passes `size` bytes of a piece and queues the rest. */
  #part(piece: Piece, size: number): void {
    if (size === piece.bytes.length) return this.#pass(piece)
    this.#queue.push({ ...piece, bytes: piece.bytes.subarray(size) })
    this.#pass({ bytes: piece.bytes.subarray(0, size), isBody: true })
  }

  /** Lets the incident happen; the piece follows if the connection survives. */
  #before(incident: WireIncident, piece: Piece): void {
    this.#queue.push(...(incident.kind === 'garble' ? garbled([piece]) : [piece]))
    this.#happen(incident)
  }

  #happen(incident: WireIncident): void {
    const { done, released } = this.#shape
    if (this.#isOver || done.hasHappened || released.aborted) return
    this.#cancelLatest?.()
    if (incident.kind === 'reset' && done.bytes > 0) {
      // If a reset arrives together with earlier bytes, many readers take it for an orderly end.
      this.#endWait?.()
      return this.#wait(READ_MS, { over: () => this.#reset() })
    }
    done.hasHappened = true
    switch (incident.kind) {
      case 'reset':
        return this.#reset()
      case 'close':
        return this.#finish(() => this.#end.close())
      case 'garble':
        return
      case 'stall':
        this.#putBack()
        this.#endWait?.()
        return this.#hold(incident.stallMs ?? 0)
    }
  }

  #reset(): void {
    this.#shape.done.hasHappened = true
    this.#finish(() => this.#end.reset())
  }

  #finish(end: () => void): void {
    this.#flush()
    this.stop()
    end()
  }

  /** Holds the reply back, which delays its call. */
  #hold(ms: Millis): void {
    let settled = () => {}
    this.#shape.holds?.(new Promise<void>((resolve) => (settled = resolve)))
    this.#wait(ms, { over: () => this.#run(), settled })
  }

  #wait(ms: Millis, { over, settled }: { readonly over: () => void; readonly settled?: () => void }): void {
    const cancel = this.#shape.clock.after(ms, () => {
      this.#endWait?.()
      over()
    })
    this.#endWait = () => {
      cancel()
      this.#endWait = undefined
      settled?.()
    }
  }

  #passEvent(): void {
    const pieces = this.#event
    this.#event = []
    this.#eventBytes = 0
    for (const piece of pieces) this.#pass(piece)
  }

  /** Passes a portion of the piece and delays the rest. */
  #passPaced(piece: Piece): void {
    const { pace, released, done, clock } = this.#shape
    if (pace === undefined || released.aborted) return this.#pass(piece)
    const nowMs = clock.now()
    this.#dueAt ??= nowMs
    if (this.#room === 0) {
      done.hasHappened = true
      this.#room = pace.bytes
      this.#queue.push(piece)
      // A late timer shortens the next gap to keep the rate, but by one gap at most.
      this.#dueAt = Math.max(this.#dueAt + pace.gapMs, nowMs - pace.gapMs)
      return this.#hold(Math.max(0, this.#dueAt - nowMs))
    }
    const now = piece.bytes.subarray(0, this.#room)
    this.#room -= now.length
    if (now.length < piece.bytes.length) {
      this.#queue.push({ ...piece, bytes: piece.bytes.subarray(now.length) })
      this.#pass({ bytes: now, isBody: true })
    } else this.#pass(piece)
  }

  #pass({ bytes, isBody, passed }: Piece): void {
    if (isBody) this.#shape.done.bytes += bytes.length
    this.#waiting -= bytes.length
    const before = this.#passing
    if (before !== undefined && !isBehind(bytes, before)) this.#flush()
    this.#passing =
      this.#passing === undefined
        ? bytes
        : Buffer.from(bytes.buffer, this.#passing.byteOffset, this.#passing.length + bytes.length)
    if (passed !== undefined) this.#flush(passed)
  }

  #flush(passed?: () => void): void {
    const bytes = this.#passing
    this.#passing = undefined
    if (bytes !== undefined) this.#end.pass(bytes, passed)
  }
}

/** Whether bytes directly follow others in memory, like pieces of one chunk. */
const isBehind = (bytes: Buffer, before: Buffer) =>
  bytes.buffer === before.buffer && bytes.byteOffset === before.byteOffset + before.length

/** Returns the body bytes of pieces, at most the first `most` bytes. */
function bodyOf(pieces: readonly Piece[], most = Infinity): Buffer {
  const parts: Buffer[] = []
  let size = 0
  for (const { bytes, isBody } of pieces) {
    if (size >= most) break
    if (!isBody) continue
    parts.push(bytes)
    size += bytes.length
  }
  return Buffer.concat(parts).subarray(0, most)
}

/** Returns a long event's kind from its beginning; undefined without data. Answers name the result first. */
function messageBegunBy(beginning: Buffer): 'response' | 'other' | undefined {
  const data = /(?:^|[\r\n])data:(.*)/s.exec(beginning.toString('latin1'))?.[1]
  if (data === undefined) return undefined
  const [, key] = /"(result|error|method)"\s*:/.exec(data) ?? []
  return key === 'result' || key === 'error' ? 'response' : 'other'
}

/** Returns the kind of message in an event; undefined for none, as in a comment or a keep-alive. */
function messageIn(event: Buffer): 'response' | 'other' | undefined {
  let data = ''
  new SseDecoder(Infinity, (decoded) => (data = decoded.data)).feed(event)
  if (data === '') return undefined
  const message = parseJson(data)
  return isObject(message) && !('method' in message) && ('result' in message || 'error' in message)
    ? 'response'
    : 'other'
}

/** Breaks JSON without changing the length: at the start of an event's data, or of a plain body. */
function garbled(pieces: readonly Piece[]): Piece[] {
  const text = pieces.map(({ bytes, isBody }) => (isBody ? bytes.toString('latin1') : '')).join('')
  const data = /(?:^|[\r\n])data: ?/.exec(text)
  let at = data === null ? text.search(/\S/) : data.index + data[0].length
  return pieces.map((piece) => {
    const { length } = piece.bytes
    if (!piece.isBody || at < 0 || at >= length) {
      if (piece.isBody) at -= length
      return piece
    }
    const bytes = Buffer.from(piece.bytes)
    bytes[at] = 0x3c
    at = -1
    return { ...piece, bytes }
  })
}

/** Applies several faults to the bytes of one reply: each shaper passes its output to the shaper added before it. */
export class WireShapers {
  readonly #end: WireEnd
  /** The last shaper gets the bytes first. */
  readonly #shapers: WireShaper[] = []

  /** `shapes`: the first shape gets the bytes last. */
  constructor(shapes: readonly WireShape[], end: WireEnd) {
    this.#end = end
    for (const shape of shapes) this.add(shape)
  }

  /** Adds a shape in front of all others. Only before the first bytes. */
  add(shape: WireShape): void {
    const next = this.#shapers.at(-1)
    this.#shapers.push(
      new WireShaper(shape, {
        pass: (bytes, passed) => (next ?? this.#end).pass(bytes, passed),
        reset: () => {
          this.stop()
          this.#end.reset()
        },
        // Already passed bytes go out first.
        close: () => (next === undefined ? this.#close() : next.end()),
      }),
    )
  }

  get waiting(): number {
    return this.#shapers.reduce((sum, { waiting }) => sum + waiting, 0)
  }

  push(chunk: Buffer, passed?: () => void): void {
    this.#shapers.at(-1)?.pass(chunk, passed)
  }

  /** Ends the connection behind the pushed bytes. */
  end(): void {
    this.#shapers.at(-1)?.end()
  }

  stop(): void {
    for (const shaper of this.#shapers) shaper.stop()
  }

  #close(): void {
    this.stop()
    this.#end.close()
  }
}
