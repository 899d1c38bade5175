import type { ServerResponse } from 'node:http'
import { type Clock, inTurns, type Millis } from '../mesh/clock.ts'
import { acceptedBy } from './accept.ts'

/** Between two looks at all replies that are open, in milliseconds. */
const LOOK_MS: Millis = 3_000

/** So many looks at an event stream may find it quiet, and then it gets a comment: 15 s after the last one, load balancers wait for 60 s. */
export const STREAM_LOOKS = 5

/** So many looks may find a reply without a byte, and then it becomes an event stream: 3 to 6 s after its request has come. */
export const REPLY_LOOKS = 2

/** No client takes it for a message. */
export const COMMENT = ': keepalive\n\n'

/** A reply, or an event stream, whose end has yet to come. */
export interface OpenReply {
  /** How many looks have found nothing written since the look before; each write sets it to 0. */
  quietLooks: number
  /** After so many of them it has to say something. */
  readonly mostQuietLooks: number
  /** Its neighbours among the open ones, which only `KeepAlive` reads; `isOpen`: it is among them. */
  isOpen: boolean
  older: OpenReply | undefined
  newer: OpenReply | undefined
  keepAlive(): void
}

/**
 * Replies that are open, which say something when they have been quiet for too long: otherwise clients, and whatever stands between them and
 * the gateway, take them for dead. One timer for all, which only runs while there are any.
 */
export class KeepAlive {
  readonly #clock: Clock
  /** The newest open one; each knows its neighbours, because one comes and goes with each request: a set costs a call a fifth of its CPU. */
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

  /** Does nothing when it is not there. */
  delete(reply: OpenReply): void {
    if (!reply.isOpen) return
    const { older, newer } = reply
    if (older !== undefined) older.newer = newer
    if (newer !== undefined) newer.older = older
    else this.#newest = older
    // A reply that is over must not keep those that came after it.
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
      // A reply that becomes a stream joins meanwhile, and is not looked at twice.
      void inTurns(this.#all(), (reply) => {
        if (!reply.isOpen || ++reply.quietLooks < reply.mostQuietLooks) return
        reply.quietLooks = 0
        reply.keepAlive()
      })
    })
  }
}

/**
 * Whether a reply may become an event stream before there is anything to say: its client has named these among what it reads, and no earlier
 * reply of the connection is in the way.
 */
export const maySpeakUp = ({ req, socket, destroyed }: ServerResponse): boolean =>
  !destroyed &&
  socket !== null &&
  acceptedBy(req.headers.accept).events &&
  /text\/event-stream/i.test(req.headers.accept ?? '')

/** Writes a comment, unless something waits to be read anyway. */
export function comment(response: ServerResponse): void {
  if (response.writableLength === 0) response.write(COMMENT)
}
