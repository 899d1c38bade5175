import type { ServerResponse } from 'node:http'
import type { Socket } from 'node:net'
import type { Clock, Millis } from '../../mesh/clock.ts'

export interface UnreadLimits {
  /** Most unread bytes for all clients together. */
  readonly total: number
  /** Most unread bytes for one session, over all its connections. */
  readonly perSession: number
  /** How long a connection with waiting bytes may accept nothing, in milliseconds. */
  readonly stalled: Millis
}

/** Why a connection closed: it accepted nothing for too long, or its session or all clients had too much. */
export const unreadCauses = ['stalled', 'per_session', 'total'] as const

export type UnreadCause = (typeof unreadCauses)[number]

/** Interval between checks of connections with unread bytes, in milliseconds. */
const LOOK_MS: Millis = 1_000

/** Connections are closed down to this share of an exceeded limit, so not every further write must make room. */
const LOW = 7 / 8

/** Texts from this length on, in characters, are converted to bytes before writing. */
const LARGE = 64 * 1024

/**
 * Returns a text in the cheapest form for a connection that may block. For a waiting text, Node keeps the text and
 * three bytes for each character; for a buffer, only the bytes.
 */
export const forWire = (text: string): string | Buffer => (text.length < LARGE ? text : Buffer.from(text))

/** Buffers up to this length may lie in Node's shared pool, in bytes. */
const POOLED = 8 * 1024

/** The source buffers of replies that may share bytes with other replies. */
const sources = new WeakMap<ServerResponse, object>()

/** Records a reply's bytes before writing: callers waiting for the same answer get the same bytes, stored once. */
export function madeOf(response: ServerResponse, chunks: readonly Buffer[]): void {
  const largest = chunks.reduce((most, chunk) => (chunk.length > most.length ? chunk : most))
  if (largest.length > POOLED) sources.set(response, largest.buffer)
}

/** A reply that its connection did not accept at once, or that waits behind another reply. */
interface Unread {
  client: object
  /** Replies with the same source share their bytes; undefined for a reply that shares none. */
  readonly source: object | undefined
  /** Bytes waiting at the last check. */
  bytes: number
}

interface Waiting {
  /** More than one reply when the client pipelined requests. */
  readonly replies: Map<ServerResponse, Unread>
  /** Bytes the connection had accepted at the last check. */
  taken: number
  /** Bytes accepted at the last two timer checks; progress since the earlier check counts as recent. */
  readonly marks: [number, number]
  /** When the connection was last seen to accept something. */
  progressAt: Millis
}

/**
 * Replies that wait in memory because clients do not read. A write that fits into its connection costs one comparison;
 * every other reply is tracked until the client has read it. Over a limit, the connections with the least recent
 * progress are closed, the longest idle first. The connection written last is spared: its client may well read. If
 * nothing else helps and other replies wait on the same connection, that connection is closed too.
 */
export class UnreadReplies {
  readonly #clock: Clock
  /** The limits in force; a reload replaces them. */
  limits: UnreadLimits
  readonly #closed: (cause: UnreadCause) => void
  readonly #open = new Map<Socket, Waiting>()
  readonly #byClient = new Map<object, number>()
  /** For each shared source, its waiting bytes and number of waiting replies. */
  readonly #shared = new Map<object, { bytes: number; replies: number }>()
  #total = 0
  #looking = false

  /** Calls `closed` for each connection closed here. */
  constructor(clock: Clock, limits: UnreadLimits, closed: (cause: UnreadCause) => void) {
    this.#clock = clock
    this.limits = limits
    this.#closed = closed
  }

  /** Waiting bytes as of the last check. */
  get bytes(): number {
    return this.#total
  }

  /** Whether anything waits now. */
  get isAny(): boolean {
    this.#look()
    return this.#open.size > 0
  }

  /**
   * Records a write; call after each write that may be large. `client` is the session; without a session the connection
   * counts as the client until a later call names a session.
   */
  wrote(response: ServerResponse, client?: object): void {
    const { writableLength } = response
    if (writableLength === 0) return
    // A response gets its own socket only after all earlier responses on the connection were sent.
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

  /** Returns the exceeded limit, if any: the client's limit before the total limit. */
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

  /** Returns the change in memory when a reply's waiting bytes change; the last reply frees shared bytes. */
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

  /** Closes the connections with the least recent progress, except the newest, until both limits have some room. */
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

  /** Updates how much each connection has accepted. */
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

  /** One timer for all connections; the timer runs only while something waits. */
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

/** Returns the bytes a connection has accepted in the last second or two. */
const lately = ({ taken, marks: [since] }: Waiting): number => taken - since

function isFor(client: object, { replies }: Waiting): boolean {
  for (const unread of replies.values()) if (unread.client === client) return true
  return false
}

/** Whether the client could read something: bytes behind another reply on the connection were not offered yet. */
function hasToTake(socket: Socket): boolean {
  return socket.writableLength + queuedIn(socket) > 0
}

/** The byte counts of a socket's handle: bytes given to the handle, and bytes the system has not accepted. */
interface Handle {
  readonly bytesWritten?: number
  readonly writeQueueSize?: number
}

function handleOf(socket: Socket): Handle | null | undefined {
  return (socket as Socket & { readonly _handle?: Handle | null })._handle
}

/**
 * Returns how many written bytes the system has accepted from a socket. Only the handle sees progress within a large
 * write; Node's socket timeout reads the handle too. Without a handle, a write counts when it completes.
 */
function takenBy(socket: Socket): number {
  const { bytesWritten } = handleOf(socket) ?? {}
  return (bytesWritten ?? socket.bytesWritten - socket.writableLength) - queuedIn(socket)
}

function queuedIn(socket: Socket): number {
  return handleOf(socket)?.writeQueueSize ?? 0
}
