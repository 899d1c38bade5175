import type { ServerResponse } from 'node:http'
import type { Socket } from 'node:net'
import type { Clock, Millis } from '../mesh/clock.ts'

export interface UnreadLimits {
  /** What may wait unread for all clients together, in bytes. */
  readonly total: number
  /** What may wait unread for one session, over all its connections, in bytes. */
  readonly perSession: number
  /** How long a connection for which something waits may take nothing at all, in milliseconds. */
  readonly stalled: Millis
}

/** Why a connection was closed: it took nothing for too long, or too much waited for its session, or for all clients. */
export const unreadCauses = ['stalled', 'per_session', 'total'] as const

export type UnreadCause = (typeof unreadCauses)[number]

/** How often connections that do not take everything are looked at, in milliseconds. */
const LOOK_MS: Millis = 1_000

/** What a limit is brought down to once it is exceeded, so that not every further write has to make room. */
const LOW = 7 / 8

/** From this length on a text is turned into bytes before it is written, in characters. */
const LARGE = 64 * 1024

/**
 * A text as it is best written to a connection that may not take all of it. Of a text that has to wait Node keeps the
 * text itself and three bytes for each of its characters; of bytes it keeps the bytes.
 */
export const forWire = (text: string): string | Buffer => (text.length < LARGE ? text : Buffer.from(text))

/** A reply that its connection did not take at once. */
interface Unread {
  readonly response: ServerResponse
  readonly client: object
  /** What waits, in bytes, when it was looked at last. */
  bytes: number
  /** How much the connection had taken then. */
  taken: number
  /** When it was seen to take something last. */
  progressAt: Millis
}

/**
 * Replies that wait in memory because clients do not read them. A write that fits into its connection costs one look
 * at a number; all others are kept in sight until they are read. When there is too much of them, the connections
 * that have taken nothing for the longest are closed, never that which was written to last: it may well be read.
 */
export class UnreadReplies {
  readonly #clock: Clock
  readonly #limits: UnreadLimits
  readonly #closed: (cause: UnreadCause) => void
  readonly #open = new Map<Socket, Unread>()
  readonly #byClient = new Map<object, number>()
  #total = 0
  #looking = false

  /** `closed` is told of each connection that is closed here. */
  constructor(clock: Clock, limits: UnreadLimits, closed: (cause: UnreadCause) => void) {
    this.#clock = clock
    this.#limits = limits
    this.#closed = closed
  }

  /** How much waits, in bytes, as far as was looked at. */
  get bytes(): number {
    return this.#total
  }

  /**
   * Notes that something was written, after each write that may be large. `client` is the session that it is for, or
   * the response itself where there is none.
   */
  wrote(response: ServerResponse, client: object): void {
    const { writableLength, socket } = response
    if (writableLength === 0 || socket === null || socket.destroyed) return
    let unread = this.#open.get(socket)
    if (unread?.response !== response) {
      if (unread !== undefined) this.#forget(socket, unread)
      unread = { response, client, bytes: 0, taken: takenBy(socket), progressAt: this.#clock.now() }
      this.#open.set(socket, unread)
    }
    this.#count(unread, writableLength)
    this.#lookLater()
    const { total, perSession } = this.#limits
    if (this.#total > total || this.#of(client) > perSession) this.#makeRoom(unread)
  }

  #of(client: object): number {
    return this.#byClient.get(client) ?? 0
  }

  #count(unread: Unread, bytes: number): void {
    const more = bytes - unread.bytes
    const ofClient = this.#of(unread.client) + more
    unread.bytes = bytes
    this.#total += more
    if (ofClient > 0) this.#byClient.set(unread.client, ofClient)
    else this.#byClient.delete(unread.client)
  }

  #forget(socket: Socket, unread: Unread): void {
    this.#open.delete(socket)
    this.#count(unread, 0)
  }

  #close(socket: Socket, unread: Unread, cause: UnreadCause): void {
    this.#forget(socket, unread)
    socket.destroy()
    this.#closed(cause)
  }

  /** Closes what has taken nothing for the longest, but not the newest, until both limits are kept with some room. */
  #makeRoom(newest: Unread): void {
    this.#look()
    const { total, perSession } = this.#limits
    const { client } = newest
    const least = { total: this.#total > total ? LOW * total : total, client: perSession }
    if (this.#of(client) > perSession) least.client = LOW * perSession
    const idlest = [...this.#open].sort(([, a], [, b]) => a.progressAt - b.progressAt)
    for (const [socket, unread] of idlest) {
      if (unread === newest) continue
      if (unread.client === client && this.#of(client) > least.client)
        this.#close(socket, unread, 'per_session')
      else if (this.#total > least.total) this.#close(socket, unread, 'total')
    }
  }

  /** Sees what connections have taken since the last time. */
  #look(): void {
    const now = this.#clock.now()
    for (const [socket, unread] of this.#open) {
      const { writableLength } = unread.response
      if (socket.destroyed || writableLength === 0) {
        this.#forget(socket, unread)
        continue
      }
      this.#count(unread, writableLength)
      const taken = takenBy(socket)
      if (taken === unread.taken) continue
      unread.taken = taken
      unread.progressAt = now
    }
  }

  /** One timer for all, which only runs while something waits. */
  #lookLater(): void {
    if (this.#looking) return
    this.#looking = true
    this.#clock.after(LOOK_MS, () => {
      this.#looking = false
      this.#look()
      const oldest = this.#clock.now() - this.#limits.stalled
      for (const [socket, unread] of this.#open)
        if (unread.progressAt <= oldest) this.#close(socket, unread, 'stalled')
      if (this.#open.size > 0) this.#lookLater()
    })
  }
}

/**
 * A number that changes whenever the system takes something of what was written to a socket. That of a single large
 * write is seen only by the handle, where Node's own time-out of sockets looks as well; without one, a write counts
 * when it is done.
 */
function takenBy(socket: Socket): number {
  const { _handle: handle } = socket as Socket & {
    readonly _handle?: { readonly writeQueueSize?: number } | null
  }
  return socket.bytesWritten - socket.writableLength - (handle?.writeQueueSize ?? 0)
}
