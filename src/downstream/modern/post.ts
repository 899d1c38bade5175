import type { WireShape } from '../../mesh/wire-shape.ts'
import { LargeMessage } from '../../protocol/large-message.ts'
import { encodeEvent } from '../../protocol/sse.ts'
import { acceptedBy } from '../accept.ts'
import { drained } from '../http/event-stream.ts'
import { underKeptId } from '../exact-id.ts'
import type { Guards } from '../limits/limits.ts'
import { COMMENT, comment, maySpeakUp, type OpenReply, REPLY_LOOKS, STREAM_LOOKS } from '../keep-alive.ts'
import { asMessages, isLarge, putOnWire, sendResponse } from '../http/post-reply.ts'
import type { Response } from '../respond.ts'
import { ShapedReply } from '../../wire/shaped-reply.ts'
import { forWire } from '../http/unread-replies.ts'
import type { HttpReply } from '../../wire/http-reply.ts'

/** Most bytes buffered for a client that does not read. */
const MAX_BACKLOG = 1024 ** 2

export interface PostParts {
  readonly guards: Pick<Guards, 'unread' | 'keepAlive'>
  /** Called when the client disconnects before its answer, which cancels the request. */
  readonly onGone: () => void
}

/**
 * The reply to a POST of a modern client: JSON, or an event stream when a message precedes the answer or the answer
 * takes long. Events have no ids, because clients of this era cannot resume a stream.
 */
export class Post implements OpenReply {
  quietLooks = 0
  isOpen = false
  older: OpenReply | undefined
  newer: OpenReply | undefined
  readonly #response: HttpReply
  readonly #parts: PostParts
  #shaped: ShapedReply | undefined
  #streaming = false

  constructor(response: HttpReply, parts: PostParts) {
    this.#response = response
    this.#parts = parts
    parts.guards.keepAlive.add(this)
    response.on('close', () => {
      parts.guards.keepAlive.delete(this)
      if (!response.writableFinished) parts.onGone()
    })
  }

  /**
   * Sends a message before the answer. Returns a promise that resolves when the connection accepts more; undefined when
   * the caller need not wait.
   */
  send(text: string): Promise<void> | undefined {
    if (this.#response.destroyed || this.#response.writableEnded || !this.#takesEvents) return undefined
    if (!this.#streaming) this.#stream()
    this.quietLooks = 0
    if (this.#response.write(forWire(encodeEvent(text)))) return undefined
    this.#wrote()
    return drained(this.#response)
  }

  /** Bytes that the event format adds to a message; 0 for JSON. */
  get framing(): number {
    return this.#streaming ? encodeEvent('').length : 0
  }

  /** Changes how the reply's bytes are sent, as a fault requires. */
  shape(shape: WireShape): boolean {
    this.#shaped ??= new ShapedReply(this.#response, () => this.#wrote())
    return this.#shaped.add(shape)
  }

  /** Sends a message without waiting. Disconnects a client that does not read. */
  tell(text: string): void {
    if (this.#response.writableLength > MAX_BACKLOG) {
      // Destroys the connection by its request: a pipelined response has no socket yet.
      this.#response.req.socket.destroy()
      this.#response.destroy()
    }
    void this.send(text)
  }

  get mostQuietLooks(): number {
    return this.#streaming ? STREAM_LOOKS : REPLY_LOOKS
  }

  keepAlive(): void {
    if (this.#streaming) return comment(this.#response)
    if (!maySpeakUp(this.#response)) return
    this.#stream()
    this.#response.write(COMMENT)
  }

  /** True when writing a response takes long: a large text must be converted to bytes first. */
  takesLong(response: Response): boolean {
    return (this.#streaming || !LargeMessage.is(response)) && isLarge(response)
  }

  finish(response: Response): void {
    this.#parts.guards.keepAlive.delete(this)
    const { wire } = response
    if (wire !== undefined && (wire.end === 'reset' || (wire.end === undefined && !this.#streaming)))
      return putOnWire(this.#response, wire)
    if (this.#streaming)
      this.#response.end(
        forWire(
          asMessages(response)
            .map((text) => encodeEvent(underKeptId(this.#response, text)))
            .join(''),
        ),
      )
    else sendResponse(this.#response, response)
    this.#wrote()
  }

  /** True when the client accepts event streams. Other clients get no messages before the answer. */
  get #takesEvents(): boolean {
    return acceptedBy(this.#response.req.headers.accept).events
  }

  #wrote(): void {
    // Names no session: without sessions, the connection identifies the client.
    this.#parts.guards.unread.wrote(this.#response)
  }

  #stream(): void {
    this.#streaming = true
    this.#response.writeHead(200, {
      'content-type': 'text/event-stream',
      'cache-control': 'no-cache, no-transform',
      'x-accel-buffering': 'no',
    })
  }
}
