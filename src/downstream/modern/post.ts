import type { ServerResponse } from 'node:http'
import type { WireShape } from '../../mesh/wire-shape.ts'
import { LargeMessage } from '../../protocol/large-message.ts'
import { encodeEvent } from '../../protocol/sse.ts'
import { drained } from '../event-stream.ts'
import { isLarge, putOnWire, sendResponse } from '../post-reply.ts'
import type { Response } from '../respond.ts'
import { ShapedReply } from '../shaped-reply.ts'
import { forWire, type UnreadReplies } from '../unread-replies.ts'

/** What may wait for a client that does not read, in bytes. */
const MAX_BACKLOG = 1024 ** 2

export interface PostParts {
  readonly unread: UnreadReplies
  /** Told when the client leaves before its answer: that cancels. */
  readonly onGone: () => void
}

/**
 * One POST of a modern client: answered as JSON, or as a stream of events when something has to travel before
 * the answer. Events have no ids: this era resumes nothing.
 */
export class Post {
  readonly #response: ServerResponse
  readonly #parts: PostParts
  #shaped: ShapedReply | undefined
  #streaming = false

  constructor(response: ServerResponse, parts: PostParts) {
    this.#response = response
    this.#parts = parts
    response.on('close', () => {
      if (!response.writableFinished) parts.onGone()
    })
  }

  /** Sends one message ahead of the answer. A promise asks to wait until the connection can take more. */
  send(text: string): Promise<void> | undefined {
    if (this.#response.destroyed || this.#response.writableEnded) return undefined
    if (!this.#streaming) this.#stream()
    if (this.#response.write(forWire(encodeEvent(text)))) return undefined
    this.#wrote()
    return drained(this.#response)
  }

  /** How many bytes stand around a message. */
  get framing(): number {
    return this.#streaming ? encodeEvent('').length : 0
  }

  /** Has the bytes of the reply go as a fault wants them. */
  shape(shape: WireShape): void {
    this.#shaped ??= new ShapedReply(this.#response, () => this.#wrote())
    this.#shaped.add(shape)
  }

  /** Sends one message on behalf of somebody who cannot wait: a client that does not read is sent away. */
  tell(text: string): void {
    if (this.#response.writableLength > MAX_BACKLOG) {
      // A response that waits for another one has no connection of its own to end.
      this.#response.req.socket.destroy()
      this.#response.destroy()
    }
    void this.send(text)
  }

  /** A sign of life that no client takes for a message. */
  keepAlive(): void {
    if (this.#streaming && !this.#response.writableEnded) this.#response.write(': keepalive\n\n')
  }

  /** Whether it takes long to put a response on the wire: a large text has to become bytes first. */
  takesLong(response: Response): boolean {
    return (this.#streaming || !LargeMessage.is(response)) && isLarge(response)
  }

  finish(response: Response): void {
    const { wire } = response
    if (wire !== undefined && wire.end !== 'shape') return putOnWire(this.#response, wire)
    if (this.#streaming) this.#response.end(forWire(encodeEvent(response.text)))
    else sendResponse(this.#response, response)
    this.#wrote()
  }

  #wrote(): void {
    // Nothing but the connection tells which replies are one client's.
    this.#parts.unread.wrote(this.#response)
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
