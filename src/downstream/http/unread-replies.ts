import type { ServerResponse } from 'node:http'
import type { Socket } from 'node:net'
import type { Clock, Millis } from '../../mesh/clock.ts'

export interface UnreadLimits {
  /** Most bytes that may wait unread for all clients together. */
  readonly total: number
  /** Most bytes that may wait unread for one session, over all its connections. */
  readonly perSession: number
  /** How long a connection for which something waits may take nothing at all, in milliseconds. */
  readonly stalled: Millis
}

/** Why a connection was closed: it took nothing for too long, or too much waited for its session, or for all clients. */
export const unreadCauses = ['stalled', 'per_session', 'total'] as const

export type UnreadCause = (typeof unreadCauses)[number]

/** How often connections that do not take everything are looked at, in milliseconds. */
const LOOK_MS: Millis = 1_000

/** The share of an exceeded limit down to which connections are closed, so that not every further write has to make room. */
const LOW = 7 / 8

/** From this length on a text is turned into bytes before it is written, in characters. */
const LARGE = 64 * 1024

/**
 * A text as it is best written to a connection that may not take all of it. Of a text that has to wait Node keeps the
 * text itself and three bytes for each of its characters; of bytes it keeps the bytes.
 */
export const forWire = (text: string): string | Buffer => (text.length < LARGE ? text : Buffer.from(text))

/** Buffers up to this length may lie in a pool that all of the process have in common, in bytes. */
const POOLED = 8 * 1024

/** The buffers of replies that may share their bytes with other replies. */
const sources = new WeakMap<ServerResponse, object>()

/**
 * Notes of which bytes a reply is made, before it is written: those who have waited for the same answer are sent the same bytes, which are
 * in memory once.
 */
export function madeOf(response: ServerResponse, chunks: readonly Buffer[]): void {
  const largest = chunks.reduce((most, chunk) => (chunk.length > most.length ? chunk : most))
  if (largest.length > POOLED) sources.set(response, largest.buffer)
}

/** A reply that its connection did not take at once, or that waits for another one to be sent first. */
interface Unread {
  client: object
  /** Replies with the same one share their bytes; undefined for one that does not. */
  readonly source: object | undefined
  /** The bytes that waited when the reply was looked at last. */
  bytes: number
}

/** A connection for which something waits. */
interface Waiting {
  /** More than one where a client has sent requests before it had the replies to earlier ones. */
  readonly replies: Map<ServerResponse, Unread>
  /** How much the connection had taken when it was looked at last. */
  taken: number
  /** How much it had taken at the last two looks of the timer: since the earlier one is lately. */
  readonly marks: [number, number]
  /** When it was seen to take something last. */
  progressAt: Millis
}

/**
 * Replies that wait in memory because clients do not read them. A write that fits into its connection costs one look
 * at a number; all others are kept in sight until they are read. When there is too much of them, the connections
 * that have taken the least lately are closed, and of those that have taken nothing the idlest; never that which was
 * written to last: it may well be read. Only where other replies wait for that one as well, it is closed, too, if nothing
 * else helps.
 */
export class UnreadReplies {
  readonly #clock: Clock
  /** The limits in force; a reload sets others. */
  limits: UnreadLimits
  readonly #closed: (cause: UnreadCause) => void
  readonly #open = new Map<Socket, Waiting>()
  readonly #byClient = new Map<object, number>()
  /** How much the bytes are that replies share, and how many wait of these. */
  readonly #shared = new Map<object, { bytes: number; replies: number }>()
  #total = 0
  #looking = false

  /** `closed` is told of each connection that is closed here. */
  constructor(clock: Clock, limits: UnreadLimits, closed: (cause: UnreadCause) => void) {
    this.#clock = clock
    this.limits = limits
    this.#closed = closed
  }

  /** How much waits, in bytes, as far as was looked at. */
  get bytes(): number {
    return this.#total
  }

  /** Whether anything waits now. */
  get isAny(): boolean {
    this.#look()
    return this.#open.size > 0
  }

  /**
   * Notes that something was written, after each write that may be large. `client` is the session that it is for; where
   * there is none, the connection stands for it until somebody says better.
   */
  wrote(response: ServerResponse, client?: object): void {
    const { writableLength } = response
    if (writableLength === 0) return
    // A response has a socket of its own only once all before it on the same connection have been sent.
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

  /** Returns the limit that is exceeded, if any: the limit of a client before the limit of all. */
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

  /** How much more is in memory when what waits of one of the replies to a source changes: it goes with the last of them. */
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

  /** Closes what has taken the least lately, but not the newest, until both limits are kept with some room. */
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

  /** Sees what connections have taken since the last time. */
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

  /** One timer for all, which only runs while something waits. */
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

/** Returns the bytes that a connection has taken in the last second or two. */
const lately = ({ taken, marks: [since] }: Waiting): number => taken - since

function isFor(client: object, { replies }: Waiting): boolean {
  for (const unread of replies.values()) if (unread.client === client) return true
  return false
}

/** Whether a client could take something: what waits for another reply on its connection was not offered to it yet. */
function hasToTake(socket: Socket): boolean {
  return socket.writableLength + queuedIn(socket) > 0
}

/** The byte counts of a socket's handle: bytes handed to the handle, and bytes of these that the system has not taken. */
interface Handle {
  readonly bytesWritten?: number
  readonly writeQueueSize?: number
}

function handleOf(socket: Socket): Handle | null | undefined {
  return (socket as Socket & { readonly _handle?: Handle | null })._handle
}

/**
 * How much the system has taken of what was written to a socket, in bytes. That of a single large write is seen only by
 * the handle, where Node's own time-out of sockets looks as well; without one, a write counts when it is done.
 */
function takenBy(socket: Socket): number {
  const { bytesWritten } = handleOf(socket) ?? {}
  return (bytesWritten ?? socket.bytesWritten - socket.writableLength) - queuedIn(socket)
}

function queuedIn(socket: Socket): number {
  return handleOf(socket)?.writeQueueSize ?? 0
}
