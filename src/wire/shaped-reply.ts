import type { ServerResponse } from 'node:http'
import type { Socket } from 'node:net'
import type { WireShape } from '../mesh/wire-shape.ts'
import { resetNow } from './shaped-connection.ts'
import { WireShapers } from './shaper.ts'

/** From so much on that waits to be written, whoever writes the reply has to wait as well, in bytes. */
const MOST_WAITING = 64 * 1024

/**
 * A reply to an agent whose bytes go as faults want them, from its first byte on. Below all that writes the reply: `write` of
 * its socket is taken over for as long as the reply goes on.
 */
export class ShapedReply {
  readonly #response: ServerResponse
  readonly #wrote: () => void
  #shapers: WireShapers | undefined
  /** Whether whoever writes waits until less does. */
  #isFull = false

  /** `wrote` is told when the connection did not take all at once. */
  constructor(response: ServerResponse, wrote: () => void) {
    this.#response = response
    this.#wrote = wrote
  }

  /** One more fault, which the bytes come to before all others. False when it is too late: a part of the reply is written. */
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
    // One that waits for an earlier reply of its connection has no socket yet, and gets none if the connection ends before.
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
        // Otherwise the socket says so itself, once it takes more.
        if (!socket.writableNeedDrain) socket.emit('drain')
      },
      // Behind what was written before.
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
    // Before Node gives the socket to the next reply of a connection.
    response.prependOnceListener('finish', giveBack)
    response.once('close', giveBack)
    return shapers
  }
}
