import type { Socket } from 'node:net'
import type { Clock, Millis } from '../../mesh/clock.ts'
import type { HttpReply } from '../../wire/http-reply.ts'

export interface UnreadLimits {
  /** Most unread bytes for all clients together. */
  readonly total: number
  /** Most unread bytes for one session, over all its connections. */
  readonly perSession: number
  /** Longest time in which a connection with waiting bytes accepts nothing, in milliseconds. */
  readonly stalled: Millis
}

/**
 * Causes for closing a connection: it accepted nothing for too long, or its session or all clients had too many unread
 * bytes.
 */
export const unreadCauses = ['stalled', 'per_session', 'total'] as const

export type UnreadCause = (typeof unreadCauses)[number]

/** Interval between checks of connections with unread bytes, in milliseconds. */
const LOOK_MS: Millis = 1_000

/**
 * Over a limit, connections are closed until unread bytes fall to this share of the limit, so that further writes have
 * room.
 */
const LOW = 7 / 8

/** Texts from this length on, in characters, are converted to bytes before writing. */
const LARGE = 64 * 1024

/**
 * Returns a text in the form that takes the least memory while it waits: a buffer for a large text. For a waiting
 * string, Node keeps the string and three bytes for each character; for a buffer, only the bytes.
 */
export const forWire = (text: string): string | Buffer => (text.length < LARGE ? text : Buffer.from(text))

/** Largest buffer that Node may allocate in its shared pool, in bytes. */
const POOLED = 8 * 1024

/** The memory of each reply's largest chunk, by response. Replies with the same memory share their bytes. */
const sources = new WeakMap<HttpReply, object>()

/**
 * Stores which memory a reply is written from. Replies to callers of the same answer share one memory, so it counts
 * only once.
 */
export function madeOf(response: HttpReply, chunks: readonly Buffer[]): void {
  const largest = chunks.reduce((most, chunk) => (chunk.length > most.length ? chunk : most))
  if (largest.length > POOLED) sources.set(response, largest.buffer)
}

/** A reply with bytes that wait for its connection or for an earlier reply. */
interface Unread {
  client: object
  /**
   * The memory the reply is written from; replies with the same source count once. Undefined for a reply that shares no
   * bytes.
   */
  readonly source: object | undefined
  /** Number of bytes that waited at the last check. */
  bytes: number
}

interface Waiting {
  /** The waiting replies; more than one only when the client pipelined requests. */
  readonly replies: Map<HttpReply, Unread>
  /** Total bytes that the connection had accepted at the last check. */
  taken: number
  /** Total bytes accepted as of the last two timer checks, the earlier first. */
  readonly marks: [number, number]
  /** Time of the last check that found the connection had accepted bytes. */
  progressAt: Millis
}

/**
 * Limits the replies that wait in memory because clients do not read. Tracks each reply that its connection does not
 * accept at once, until the client has read the reply. Over a limit, closes the connections that accepted the fewest
 * bytes lately, the longest idle first. Spares the connection of the latest write, because its client may read. Closes
 * that connection too if nothing else helps and other replies wait on it.
 */
export class UnreadReplies {
  readonly #clock: Clock
  /** The limits in force; a reload replaces them. */
  limits: UnreadLimits
  readonly #closed: (cause: UnreadCause) => void
  readonly #open = new Map<Socket, Waiting>()
  readonly #byClient = new Map<object, number>()
  /** The waiting bytes and the number of waiting replies, by source. */
  readonly #shared = new Map<object, { bytes: number; replies: number }>()
  #total = 0
  #looking = false

  /** Calls `closed` with the cause for each connection that a limit closes. */
  constructor(clock: Clock, limits: UnreadLimits, closed: (cause: UnreadCause) => void) {
    this.#clock = clock
    this.limits = limits
    this.#closed = closed
  }

  /** Number of bytes that waited at the last check. */
  get bytes(): number {
    return this.#total
  }

  /** True when any reply has waiting bytes now. */
  get isAny(): boolean {
    this.#look()
    return this.#open.size > 0
  }

  /**
   * Checks a response for waiting bytes, and applies the limits. Call this after each write that may be large. `client`
   * is the session; without a session the connection counts as the client until a later call names a session.
   */
  wrote(response: HttpReply, client?: object): void {
    const { writableLength } = response
    if (writableLength === 0) return
    // A pipelined response has no socket yet: Node assigns the socket after all earlier responses of the connection
    // were sent.
    const socket = response.socket ?? response.req.socket
    if (socket.destroyed) return
    let waiting = this.#open.get(socket)
    if (waiting === undefined) {
      const taken = takenBy(socket)
      waiting = { replies: new Map(), taken, marks: [taken, taken], progressAt: this.#clock.now() }
      this.#open.set(socket, waiting)
    }
    let unread = waiting.replies.get(response)
    if (unread === undefined) {
      unread = { client: client ?? socket, source: sources.get(response), bytes: 0 }
      waiting.replies.set(response, unread)
    } else if (client !== undefined && unread.client !== client) {
      this.#count(unread, 0)
      unread.client = client
    }
    this.#count(unread, writableLength)
    this.#lookLater()
    if (this.#excess(unread.client) !== undefined) this.#makeRoom(socket, waiting, unread.client)
  }

  #of(client: object): number {
    return this.#byClient.get(client) ?? 0
  }

  /** Returns the exceeded limit; checks the client's limit before the total limit. Undefined within the limits. */
  #excess(client: object): 'per_session' | 'total' | undefined {
    if (this.#of(client) > this.limits.perSession) return 'per_session'
    return this.#total > this.limits.total ? 'total' : undefined
  }

  #count(unread: Unread, bytes: number): void {
    const more = bytes - unread.bytes
    const ofClient = this.#of(unread.client) + more
    this.#total += unread.source === undefined ? more : this.#share(unread.source, unread.bytes, bytes)
    unread.bytes = bytes
    if (ofClient > 0) this.#byClient.set(unread.client, ofClient)
    else this.#byClient.delete(unread.client)
  }

  /**
   * Returns the change in memory when a reply's waiting bytes change. Shared bytes are free when the last reply of the
   * source is sent.
   */
  #share(source: object, before: number, bytes: number): number {
    const shared = this.#shared.get(source) ?? { bytes: 0, replies: 0 }
    this.#shared.set(source, shared)
    if (before === 0 && bytes > 0) shared.replies++
    if (before > 0 && bytes === 0) shared.replies--
    if (shared.replies === 0) this.#shared.delete(source)
    const held = shared.replies === 0 ? 0 : Math.max(shared.bytes, bytes)
    const more = held - shared.bytes
    shared.bytes = held
    return more
  }

  #forget(socket: Socket, { replies }: Waiting): void {
    this.#open.delete(socket)
    for (const unread of replies.values()) this.#count(unread, 0)
  }

  #close(socket: Socket, waiting: Waiting, cause: UnreadCause): void {
    this.#forget(socket, waiting)
    socket.destroy()
    this.#closed(cause)
  }

  /**
   * Closes the connections that accepted the fewest bytes lately, until both limits have some room. Closes `newest`
   * last.
   */
  #makeRoom(newest: Socket, newestWaiting: Waiting, client: object): void {
    this.#look()
    const { total, perSession } = this.limits
    const least = { total: this.#total > total ? LOW * total : total, client: perSession }
    if (this.#of(client) > perSession) least.client = LOW * perSession
    const slowest = [...this.#open].sort(
      ([, a], [, b]) => lately(a) - lately(b) || a.progressAt - b.progressAt,
    )
    for (const [socket, waiting] of slowest) {
      if (socket === newest) continue
      if (this.#of(client) > least.client && isFor(client, waiting))
        this.#close(socket, waiting, 'per_session')
      else if (this.#total > least.total) this.#close(socket, waiting, 'total')
    }
    const excess = this.#excess(client)
    if (excess !== undefined && newestWaiting.replies.size > 1) this.#close(newest, newestWaiting, excess)
  }

  /** Updates the waiting and the accepted bytes of each connection. */
  #look(): void {
    const now = this.#clock.now()
    for (const [socket, waiting] of this.#open) {
      for (const [response, unread] of waiting.replies) {
        const bytes = socket.destroyed ? 0 : response.writableLength
        this.#count(unread, bytes)
        if (bytes === 0) waiting.replies.delete(response)
      }
      if (waiting.replies.size === 0) {
        this.#open.delete(socket)
        continue
      }
      const taken = takenBy(socket)
      if (taken === waiting.taken) continue
      waiting.taken = taken
      waiting.progressAt = now
    }
  }

  /** Schedules the next check of all connections, while any connection has waiting bytes. */
  #lookLater(): void {
    if (this.#looking) return
    this.#looking = true
    this.#clock.after(LOOK_MS, () => {
      this.#looking = false
      this.#look()
      const oldest = this.#clock.now() - this.limits.stalled
      for (const [socket, waiting] of this.#open) {
        if (waiting.progressAt <= oldest && hasToTake(socket)) this.#close(socket, waiting, 'stalled')
        waiting.marks.shift()
        waiting.marks.push(waiting.taken)
      }
      if (this.#open.size > 0) this.#lookLater()
    })
  }
}

/** Returns the bytes that a connection has accepted in the last one or two seconds. */
const lately = ({ taken, marks: [since] }: Waiting): number => taken - since

function isFor(client: object, { replies }: Waiting): boolean {
  for (const unread of replies.values()) if (unread.client === client) return true
  return false
}

/**
 * True when the socket has bytes that the client could read. Bytes of a later pipelined reply are not in the socket
 * yet.
 */
function hasToTake(socket: Socket): boolean {
  return socket.writableLength + queuedIn(socket) > 0
}

/**
 * The byte counts of a socket's handle in Node: bytes given to the handle, and bytes the operating system has not
 * accepted.
 */
interface Handle {
  readonly bytesWritten?: number
  readonly writeQueueSize?: number
}

function handleOf(socket: Socket): Handle | null | undefined {
  return (socket as Socket & { readonly _handle?: Handle | null })._handle
}

/**
 * Returns how many written bytes the operating system has accepted from a socket. Reads the socket's handle, because
 * only the handle shows progress within a large write. Without a handle, a write counts when it completes.
 */
function takenBy(socket: Socket): number {
  const { bytesWritten } = handleOf(socket) ?? {}
  return (bytesWritten ?? socket.bytesWritten - socket.writableLength) - queuedIn(socket)
}

function queuedIn(socket: Socket): number {
  return handleOf(socket)?.writeQueueSize ?? 0
}
