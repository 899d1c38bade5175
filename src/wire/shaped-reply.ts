import type { Socket } from 'node:net'
import type { WireShape } from '../mesh/wire-shape.ts'
import { resetNow } from './shaped-connection.ts'
import { WireShapers } from './shaper.ts'
import type { HttpReply } from './http-reply.ts'

/** Waiting bytes above this limit make the writer of the reply wait. */
const MOST_WAITING = 64 * 1024

/**
 * A reply to an agent with its bytes shaped by faults from the first byte on. Works below all writers of the reply:
 * takes over `write` of the socket for the duration of the reply.
 */
export class ShapedReply {
  readonly #response: HttpReply
  readonly #wrote: () => void
  #shapers: WireShapers | undefined
  /** Whether the writer waits for the buffer to drain. */
  #isFull = false

  /** `wrote` is called when the connection did not accept all bytes at once. */
  constructor(response: HttpReply, wrote: () => void) {
    this.#response = response
    this.#wrote = wrote
  }

  /** Adds a fault in front of all others. Returns false when a part of the reply is already written. */
  add(shape: WireShape): boolean {
    const response = this.#response
    if (response.destroyed) shape.over?.()
    else if (response.headersSent) return false
    else if (response.socket !== null) this.#begin(response.socket, shape)
    else this.#beginLater(shape)
    return true
  }

  #beginLater(shape: WireShape): void {
    const response = this.#response
    // A reply that waits for an earlier reply has no socket yet, and gets no socket if the connection ends first.
    const begin = (socket: Socket) => {
      response.off('close', leave)
      this.#begin(socket, shape)
    }
    const leave = () => {
      response.off('socket', begin)
      shape.over?.()
    }
    response.once('socket', begin).once('close', leave)
  }

  #begin(socket: Socket, shape: WireShape): void {
    if (this.#shapers === undefined) this.#shapers = this.#takeOver(socket, shape)
    else this.#shapers.add(shape)
  }

  #takeOver(socket: Socket, shape: WireShape): WireShapers {
    const response = this.#response
    const write = socket.write.bind(socket) as (bytes: Buffer, passed?: () => void) => boolean
    const shapers = new WireShapers([shape], {
      pass: (bytes, passed) => {
        if (!write(bytes, passed)) this.#wrote()
        if (!this.#isFull || shapers.waiting > MOST_WAITING) return
        this.#isFull = false
        // Otherwise the socket emits `drain` itself.
        if (!socket.writableNeedDrain) socket.emit('drain')
      },
      // Resets only after all earlier writes.
      reset: () => void write(Buffer.alloc(0), () => resetNow(socket)),
      close: () => socket.destroySoon(),
    })
    const shaped = (chunk: string | Uint8Array, encoding?: unknown, passed?: unknown): boolean => {
      const done = (typeof encoding === 'function' ? encoding : passed) as (() => void) | undefined
      const bytes =
        typeof chunk === 'string'
          ? Buffer.from(chunk, typeof encoding === 'string' ? (encoding as BufferEncoding) : 'utf8')
          : Buffer.from(chunk)
      shapers.push(bytes, done)
      this.#isFull = shapers.waiting > MOST_WAITING
      return !this.#isFull && !socket.writableNeedDrain
    }
    socket.write = shaped
    const giveBack = () => {
      shapers.stop()
      if (socket.write === shaped) Reflect.deleteProperty(socket, 'write')
    }
    // Runs before Node gives the socket to the next reply of the connection.
    response.prependOnceListener('finish', giveBack)
    response.once('close', giveBack)
    return shapers
  }
}
