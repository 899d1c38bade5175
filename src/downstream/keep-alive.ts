import { type Clock, inTurns, type Millis } from '../mesh/clock.ts'
import { acceptedBy } from './accept.ts'
import type { HttpReply } from '../wire/http-reply.ts'

/** Interval between checks of all open replies, in milliseconds. */
const LOOK_MS: Millis = 3_000

/**
 * Checks without a write before an event stream gets a comment: about 15 s. Load balancers close a connection after 60
 * s.
 */
export const STREAM_LOOKS = 5

/** Checks without a write before a reply becomes an event stream: 3 to 6 s after the request arrived. */
export const REPLY_LOOKS = 2

/** A comment in an event stream, which clients ignore. */
export const COMMENT = ': keepalive\n\n'

/** A reply or event stream that has not ended. */
export interface OpenReply {
  /** Number of checks without a write since the last write; each write resets it to 0. */
  quietLooks: number
  /** Number of checks without a write after which the reply must write a comment. */
  readonly mostQuietLooks: number
  /** Neighbours in the list of open replies, read only by `KeepAlive`; `isOpen`: the reply is in the list. */
  isOpen: boolean
  older: OpenReply | undefined
  newer: OpenReply | undefined
  keepAlive(): void
}

/**
 * Sends comments to open replies without recent writes, because clients and proxies would close their connections. Uses
 * one timer for all replies, which runs only while replies are open.
 */
export class KeepAlive {
  readonly #clock: Clock
  /** The newest open reply in a linked list; with a set instead, a call would take a fifth more CPU. */
  #newest: OpenReply | undefined
  #looking = false

  constructor(clock: Clock) {
    this.#clock = clock
  }

  add(reply: OpenReply): void {
    if (reply.isOpen) return
    const newest = this.#newest
    reply.older = newest
    if (newest !== undefined) newest.newer = reply
    this.#newest = reply
    reply.isOpen = true
    if (!this.#looking) this.#lookLater()
  }

  /** Removes a reply; does nothing when the reply is not in the list. */
  delete(reply: OpenReply): void {
    if (!reply.isOpen) return
    const { older, newer } = reply
    if (older !== undefined) older.newer = newer
    if (newer !== undefined) newer.older = older
    else this.#newest = older
    // Clears the links, so that a finished reply does not keep later replies in memory.
    reply.older = reply.newer = undefined
    reply.isOpen = false
  }

  #all(): OpenReply[] {
    const all: OpenReply[] = []
    for (let reply = this.#newest; reply !== undefined; reply = reply.older) all.push(reply)
    return all
  }

  #lookLater(): void {
    this.#looking = true
    this.#clock.after(LOOK_MS, () => {
      this.#looking = false
      if (this.#newest === undefined) return
      this.#lookLater()
      // A reply that becomes a stream joins the list again meanwhile; this check does not visit it twice.
      void inTurns(this.#all(), (reply) => {
        if (!reply.isOpen || ++reply.quietLooks < reply.mostQuietLooks) return
        reply.quietLooks = 0
        reply.keepAlive()
      })
    })
  }
}

/**
 * True when a reply may become an event stream before any message: the client accepts event streams, and the connection
 * has no earlier open reply.
 */
export const maySpeakUp = ({ req, socket, destroyed }: HttpReply): boolean =>
  !destroyed &&
  socket !== null &&
  acceptedBy(req.headers.accept).events &&
  /text\/event-stream/i.test(req.headers.accept ?? '')

/** Writes a comment, unless unread bytes wait. */
export function comment(response: HttpReply): void {
  if (response.writableLength === 0) response.write(COMMENT)
}
