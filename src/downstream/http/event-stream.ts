import type { Socket } from 'node:net'
import { TurnBatch } from '../../mesh/turns.ts'
import { encodeEvent } from '../../protocol/sse.ts'
import { comment, type KeepAlive, type OpenReply, STREAM_LOOKS } from '../keep-alive.ts'
import { forWire } from './unread-replies.ts'
import type { HttpReply } from '../../wire/http-reply.ts'

/** Parses an event id of Breakwater into its stream number and sequence number; undefined for any other text. */
export function readEventId(id: string): { stream: number; sequence: number } | undefined {
  const match = /^(\d{1,15})-(\d{1,15})$/.exec(id)
  return match === null ? undefined : { stream: Number(match[1]), sequence: Number(match[2]) }
}

/**
 * Connections with a new stream. Their sockets stay corked in this turn of the event loop and the next. Most streams
 * have one event and end, so a single write sends everything; a further write costs up to a sixth of a call. Corks the
 * socket, because Node 24 sends the last chunk of a corked response before the other chunks.
 */
const begun = new TurnBatch<Socket>((connection) => connection.uncork())
const beginning = new TurnBatch<Socket>((connection) => begun.add(connection))

/** Most bytes buffered for a client that does not read, without replayed events. */
const MAX_BACKLOG = 256 * 1024

export interface StreamCare {
  /** Called when a connection did not accept all bytes at once. */
  readonly unread: (response: HttpReply) => void
  readonly keepAlive: KeepAlive
}

/**
 * An event stream to a client. The stream outlives its connection: the replay log stores each event, and a client that
 * reconnects gets the missed events.
 */
export class EventStream implements OpenReply {
  readonly number: number
  readonly mostQuietLooks = STREAM_LOOKS
  quietLooks = 0
  isOpen = false
  older: OpenReply | undefined
  newer: OpenReply | undefined
  readonly #log: ReplayLog
  readonly #care: StreamCare
  #sequence = 0
  #delivered = 0
  #response: HttpReply | undefined
  /** Replayed bytes buffered for the connection. */
  #repeated = 0
  #onReturn: (() => void) | undefined

  /** `number`: a number that no other stream of the session has. */
  constructor(number: number, log: ReplayLog, care: StreamCare) {
    this.number = number
    this.#log = log
    this.#care = care
  }

  get attached(): boolean {
    return this.#response !== undefined
  }

  /**
   * Sends this stream to a connection, in place of the previous connection. Replays the events after number `after`;
   * without `after`, the events that no connection has received. `priming` sends an event id before the first message,
   * so the client can resume. `shift` moves the start of the replay by this many events: below 0 earlier, above 0
   * later.
   */
  attach(
    response: HttpReply,
    { after, priming, shift = 0 }: { after?: number | undefined; priming: boolean; shift?: number },
  ): void {
    this.end()
    // The response of a disconnected client emits no further close event.
    if (response.destroyed) return
    this.#response = response
    this.quietLooks = 0
    this.#care.keepAlive.add(this)
    response.once('close', () => {
      if (this.#response === response) this.#detach()
    })
    const { socket } = response
    if (socket !== null) {
      socket.cork()
      beginning.add(socket)
    }
    response.writeHead(200, {
      'content-type': 'text/event-stream',
      'cache-control': 'no-cache, no-transform',
      'x-accel-buffering': 'no',
    })
    response.flushHeaders()
    if (priming && after === undefined) response.write(`id: ${this.number}-${this.#delivered}\ndata: \n\n`)
    for (const event of this.#log.after(this.number, (after ?? this.#delivered) + shift)) {
      response.write(encodeEvent(event.data, `${this.number}-${event.sequence}`))
    }
    this.#delivered = this.#sequence
    this.#repeated = response.writableLength
    if (response.writableNeedDrain) this.#care.unread(response)
    const onReturn = this.#onReturn
    this.#onReturn = undefined
    onReturn?.()
  }

  /** Bytes that the event format adds to the next message. */
  get framing(): number {
    return encodeEvent('', `${this.number}-${this.#sequence + 1}`).length
  }

  /**
   * Logs a message and sends it as an event. Returns a promise that resolves when the connection accepts more;
   * undefined when the caller need not wait.
   */
  send(data: string): Promise<void> | undefined {
    const sequence = ++this.#sequence
    this.#log.add({ stream: this.number, sequence, data })
    const response = this.#response
    if (response === undefined) return undefined
    this.#delivered = sequence
    this.quietLooks = 0
    if (response.write(forWire(encodeEvent(data, `${this.number}-${sequence}`)))) return undefined
    this.#care.unread(response)
    return drained(response)
  }

  /** Sends a message without waiting. Disconnects a client that does not read; the client may resume the stream. */
  tell(data: string): void {
    const response = this.#response
    if (response !== undefined && this.#isBehind(response)) {
      // Uncorks first: bytes in a corked socket wait for the gateway, not for the client.
      response.socket?.uncork()
      if (this.#isBehind(response)) {
        response.req.socket.destroy()
        this.#detach()
      }
    }
    void this.send(data)
  }

  #isBehind({ writableLength }: HttpReply): boolean {
    return writableLength > this.#repeated + MAX_BACKLOG
  }

  /**
   * Ends the response and asks the client to reconnect after `retryMs`. The replay log stores the events meanwhile.
   * Calls `onReturn` when the client has reconnected.
   */
  pause(retryMs: number, onReturn?: () => void): void {
    this.#onReturn = onReturn
    this.#response?.end(`id: ${this.number}-${this.#sequence}\nretry: ${retryMs}\ndata: \n\n`)
    this.#detach()
  }

  keepAlive(): void {
    if (this.#response !== undefined) comment(this.#response)
  }

  end(): void {
    this.#response?.end()
    this.#detach()
  }

  #detach(): void {
    this.#response = undefined
    this.#care.keepAlive.delete(this)
  }
}

/**
 * The promise of `drained` for each blocked response. All waiting callers share it, because removing many listeners
 * takes quadratic time.
 */
const draining = new WeakMap<HttpReply, Promise<void>>()

/** Resolves when the connection accepts more or has closed. */
export function drained(response: HttpReply): Promise<void> {
  const waited = draining.get(response)
  if (waited !== undefined) return waited
  const settled = new Promise<void>((resolve) => {
    const done = () => {
      draining.delete(response)
      response.off('drain', done)
      response.off('close', done)
      resolve()
    }
    response.once('drain', done)
    response.once('close', done)
  })
  draining.set(response, settled)
  return settled
}

/** An event of a stream, already sent or still to be sent. */
export interface LoggedEvent {
  readonly stream: number
  readonly sequence: number
  readonly data: string
}

/** Most bytes of all logs together, and most events and bytes of each log. */
export interface ReplayLimits {
  readonly total: number
  readonly events: number
  readonly bytes: number
}

/** An event in a log; `log` is undefined once the log dropped the event. */
interface ReplayableEvent extends LoggedEvent {
  readonly bytes: number
  data: string
  log: ReplayLog | undefined
}

/**
 * A first-in, first-out queue. Removals leave a gap at the front of the array; the queue closes the gap when it is half
 * of the array.
 */
class Queue {
  #items: (ReplayableEvent | undefined)[] = []
  #head = 0

  get size(): number {
    return this.#items.length - this.#head
  }

  get first(): ReplayableEvent | undefined {
    return this.#items[this.#head]
  }

  push(item: ReplayableEvent): void {
    this.#items.push(item)
  }

  shift(): ReplayableEvent | undefined {
    const { first } = this
    if (first === undefined) return undefined
    this.#items[this.#head++] = undefined
    if (this.#head * 2 > this.#items.length) {
      this.#items = this.#items.slice(this.#head)
      this.#head = 0
    }
    return first
  }

  /** Keeps only items for which `which` returns true. */
  keep(which: (item: ReplayableEvent) => boolean): void {
    this.#items = this.all().filter(which)
    this.#head = 0
  }

  all(): ReplayableEvent[] {
    return this.#items.slice(this.#head) as ReplayableEvent[]
  }
}

/** The replay budget of all sessions together. Over the limit, drops the oldest events of all sessions first. */
export class ReplayBudget {
  /** The limits in force; a reload replaces them. */
  limits: ReplayLimits
  readonly #dropped: () => void
  readonly #queue = new Queue()
  /** Number of events in the queue that their logs have already dropped. */
  #gone = 0
  #bytes = 0

  /** Calls `dropped` for each event dropped because of this limit. */
  constructor(limits: ReplayLimits, dropped: () => void) {
    this.limits = limits
    this.#dropped = dropped
  }

  get bytes(): number {
    return this.#bytes
  }

  add(event: ReplayableEvent): void {
    this.#queue.push(event)
    this.#bytes += event.bytes
    while (this.#bytes > this.limits.total) {
      const { first } = this.#queue
      if (first === undefined) return
      if (first.log === undefined) {
        this.#queue.shift()
        this.#gone--
      } else {
        // Logs and queue have the same order, so this event is also the oldest in its log.
        first.log.dropOldest()
        this.#dropped()
      }
    }
  }

  /** Removes an event from the budget. */
  forget({ bytes }: ReplayableEvent): void {
    this.#bytes -= bytes
    this.#gone++
    if (this.#gone * 2 <= this.#queue.size) return
    this.#queue.keep(({ log }) => log !== undefined)
    this.#gone = 0
  }
}

/**
 * The latest events of all streams of a session, for clients that resume. Beyond the limits, drops the oldest events
 * first.
 */
export class ReplayLog {
  readonly #budget: ReplayBudget
  readonly #events = new Queue()
  #bytes = 0
  #isClosed = false

  constructor(budget: ReplayBudget) {
    this.#budget = budget
  }

  add({ stream, sequence, data }: LoggedEvent): void {
    if (this.#isClosed) return
    const bytes = Buffer.byteLength(data)
    const { events, bytes: own, total } = this.#budget.limits
    const most = Math.min(own, total)
    // Applies this log's own limits first: an event too large to keep must not push out events of other sessions.
    while (this.#events.size > 0 && (this.#events.size >= events || this.#bytes + bytes > most))
      this.dropOldest()
    if (events === 0 || bytes > most) return
    const event: ReplayableEvent = { stream, sequence, data, bytes, log: this }
    this.#events.push(event)
    this.#bytes += bytes
    this.#budget.add(event)
  }

  dropOldest(): void {
    const event = this.#events.shift()
    if (event === undefined) return
    this.#bytes -= event.bytes
    event.log = undefined
    event.data = ''
    this.#budget.forget(event)
  }

  /** Returns the events of a stream after `sequence`, oldest first. */
  after(stream: number, sequence: number): LoggedEvent[] {
    return this.#events.all().filter((event) => event.stream === stream && event.sequence > sequence)
  }

  /** Drops all events, because no client will resume any more. */
  close(): void {
    this.#isClosed = true
    while (this.#events.size > 0) this.dropOldest()
  }
}
