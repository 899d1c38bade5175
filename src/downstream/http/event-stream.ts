import type { ServerResponse } from 'node:http'
import type { Socket } from 'node:net'
import { TurnBatch } from '../../mesh/turns.ts'
import { encodeEvent } from '../../protocol/sse.ts'
import { comment, type KeepAlive, type OpenReply, STREAM_LOOKS } from '../keep-alive.ts'
import { forWire } from './unread-replies.ts'

/** Reads an event id of ours: the stream, and the event's place in it. */
export function readEventId(id: string): { stream: number; sequence: number } | undefined {
  const match = /^(\d{1,15})-(\d{1,15})$/.exec(id)
  return match === null ? undefined : { stream: Number(match[1]), sequence: Number(match[2]) }
}

/**
 * Connections on which a stream has just begun, for this turn of the event loop and the next: most have one event and end with it, and
 * what they write until then goes out in one piece. A write of its own costs as much as a sixth of a call. Not the responses: of one that
 * is corked Node 24 sends the last chunk, which has no length, before the others.
 */
const begun = new TurnBatch<Socket>((connection) => connection.uncork())
const beginning = new TurnBatch<Socket>((connection) => begun.add(connection))

/** Most bytes that may wait for a client that does not read, besides all events that were repeated to it. */
const MAX_BACKLOG = 256 * 1024

/** Parts that look after the connection of a stream. */
export interface StreamCare {
  /** Told of a connection that did not take all at once. */
  readonly unread: (response: ServerResponse) => void
  readonly keepAlive: KeepAlive
}

/**
 * One stream of events to a client. It outlives its connection: what is sent while nobody listens goes
 * to the replay log, and a client that comes back gets it.
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
  #response: ServerResponse | undefined
  /** How much of what was repeated to the connection could not be sent at once, in bytes. */
  #repeated = 0
  #onReturn: (() => void) | undefined

  /** `number` is unique within the session. */
  constructor(number: number, log: ReplayLog, care: StreamCare) {
    this.number = number
    this.#log = log
    this.#care = care
  }

  get attached(): boolean {
    return this.#response !== undefined
  }

  /**
   * Sends this stream to a connection, in place of the one before. With `after`, events behind that one
   * are repeated; without, those that nobody has received. `priming` gives the client an id to resume from
   * before the first message. With `shift` it begins so many events earlier (below 0) or later than it should.
   */
  attach(
    response: ServerResponse,
    { after, priming, shift = 0 }: { after?: number | undefined; priming: boolean; shift?: number },
  ): void {
    this.end()
    // A client that is gone already would never be heard to leave.
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

  /** How many bytes stand around the next message. */
  get framing(): number {
    return encodeEvent('', `${this.number}-${this.#sequence + 1}`).length
  }

  /** Sends one message. A promise asks to wait until the connection can take more. */
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

  /** Sends one message on behalf of somebody who cannot wait: a client that does not read is sent away, and may resume. */
  tell(data: string): void {
    const response = this.#response
    if (response !== undefined && this.#isBehind(response)) {
      // Bytes that wait for the end of the turn wait for the gateway, and not for the client.
      response.socket?.uncork()
      if (this.#isBehind(response)) {
        response.req.socket.destroy()
        this.#detach()
      }
    }
    void this.send(data)
  }

  #isBehind({ writableLength }: ServerResponse): boolean {
    return writableLength > this.#repeated + MAX_BACKLOG
  }

  /** Sends the client away, to come back after `retryMs`; what happens meanwhile goes to the log. Once it is back `onReturn` is called. */
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

/** By connection that takes no more, what all wait for who have something for it: each listener of its own would be looked for among all. */
const draining = new WeakMap<ServerResponse, Promise<void>>()

/** Resolves when the connection takes more, or is gone. */
export function drained(response: ServerResponse): Promise<void> {
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

/** An event that was sent, or will be when somebody listens. */
export interface LoggedEvent {
  readonly stream: number
  readonly sequence: number
  readonly data: string
}

/** Most bytes of all logs together, and most events and bytes of each. */
export interface ReplayLimits {
  readonly total: number
  readonly events: number
  readonly bytes: number
}

/** An event that is kept; one that is not any more has no log. */
interface ReplayableEvent extends LoggedEvent {
  readonly bytes: number
  data: string
  log: ReplayLog | undefined
}

/** First in, first out. What is taken out in front leaves a gap, which is closed when it is half of all. */
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

  /** Only those for which `which` is true stay. */
  keep(which: (item: ReplayableEvent) => boolean): void {
    this.#items = this.all().filter(which)
    this.#head = 0
  }

  all(): ReplayableEvent[] {
    return this.#items.slice(this.#head) as ReplayableEvent[]
  }
}

/** The budget of the logs of all sessions together. Bounded; the oldest events go first, whichever session they belong to. */
export class ReplayBudget {
  /** The limits in force; a reload sets others. */
  limits: ReplayLimits
  readonly #dropped: () => void
  readonly #queue = new Queue()
  /** Events of the queue that their logs have dropped by themselves. */
  #gone = 0
  #bytes = 0

  /** `dropped` is told of each event that has to go because of this limit. */
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
        // Logs and queue have the same order: it is the oldest of its log, too.
        first.log.dropOldest()
        this.#dropped()
      }
    }
  }

  /** An event is kept no more. */
  forget({ bytes }: ReplayableEvent): void {
    this.#bytes -= bytes
    this.#gone++
    if (this.#gone * 2 <= this.#queue.size) return
    this.#queue.keep(({ log }) => log !== undefined)
    this.#gone = 0
  }
}

/** The last events of a session, over all its streams: what a client may ask for again. Bounded; the oldest go first. */
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
    // Room is made among its own first: what is too large to be kept must not cost other sessions theirs.
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

  /** The events of one stream behind `sequence`, oldest first. */
  after(stream: number, sequence: number): LoggedEvent[] {
    return this.#events.all().filter((event) => event.stream === stream && event.sequence > sequence)
  }

  /** Nobody will ask for anything again. */
  close(): void {
    this.#isClosed = true
    while (this.#events.size > 0) this.dropOldest()
  }
}
