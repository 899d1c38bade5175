import type { IncomingHttpHeaders } from 'node:http'
import type { Socket } from 'node:net'
import { Readable } from 'node:stream'
import type { BodySource } from '../../../wire/http-reply.ts'

/** The body of a request that did not arrive as a whole with its head. */
export class RequestBody extends Readable implements BodySource {
  readonly headers: IncomingHttpHeaders
  readonly socket: Socket
  complete = false
  /** Bytes that have not arrived. */
  #left: number
  readonly #wanted: () => void

  /** `length` in bytes, at least 1. Calls `wanted` when the reader wants more bytes. */
  constructor(headers: IncomingHttpHeaders, socket: Socket, length: number, wanted: () => void) {
    super()
    this.headers = headers
    this.socket = socket
    this.#left = length
    this.#wanted = wanted
  }

  /** Takes the bytes of `chunk` from `from` on that belong to the body. Returns where the rest begins. */
  add(chunk: Buffer, from: number): number {
    const to = Math.min(chunk.length, from + this.#left)
    this.#left -= to - from
    this.complete = this.#left === 0
    const isFull =
      to > from && !this.push(from === 0 && to === chunk.length ? chunk : chunk.subarray(from, to))
    if (this.complete) this.push(null)
    else if (isFull) this.socket.pause()
    return to
  }

  /** Ends a body whose connection has closed. */
  abort(): void {
    if (this.complete) return
    // Emits `error` for the reader, and ignores the error without a reader.
    this.on('error', () => undefined).destroy(new Error('aborted'))
  }

  override _read(): void {
    if (!this.complete) this.#wanted()
  }
}
