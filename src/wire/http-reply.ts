import type { IncomingHttpHeaders } from 'node:http'
import type { Socket } from 'node:net'
import type { Readable } from 'node:stream'

/** A request whose body may still arrive. Node's `IncomingMessage` is one. */
export interface BodySource extends Readable {
  readonly headers: IncomingHttpHeaders
  readonly socket: Socket
  /** True when the last byte of the body has arrived. */
  readonly complete: boolean
}

/** A request whose body arrived together with its head. */
export interface WholeRequest {
  readonly headers: IncomingHttpHeaders
  readonly socket: Socket
  readonly complete: true
}

/** The reply to an HTTP request, as far as the gateway uses it. Node's `ServerResponse` is one. */
export interface HttpReply {
  readonly req: BodySource | WholeRequest
  /** The connection; null while an earlier reply of the connection is open, and after the end. */
  readonly socket: Socket | null
  readonly destroyed: boolean
  readonly headersSent: boolean
  readonly writableEnded: boolean
  readonly writableFinished: boolean
  /** Bytes that the operating system has not accepted. */
  readonly writableLength: number
  readonly writableNeedDrain: boolean
  writeHead(status: number, headers?: Readonly<Record<string, string | number>>): this
  flushHeaders(): void
  /** Returns false when the writer should wait for `drain`. */
  write(chunk: string | Buffer): boolean
  end(chunk?: string | Buffer): this
  cork(): void
  destroy(): unknown
  on(event: ReplyEvent, listener: () => void): this
  once(event: ReplyEvent, listener: () => void): this
  once(event: 'socket', listener: (socket: Socket) => void): this
  off(event: ReplyEvent, listener: () => void): unknown
  off(event: 'socket', listener: (socket: Socket) => void): unknown
  prependOnceListener(event: ReplyEvent, listener: () => void): unknown
}

type ReplyEvent = 'close' | 'drain' | 'finish'
