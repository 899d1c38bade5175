import type { Socket } from 'node:net'
import { Duplex } from 'node:stream'
import { TLSSocket } from 'node:tls'
import { buildConnector, Client, type Dispatcher } from 'undici'
import { nextTurn } from '../mesh/clock.ts'
import type { WireShape } from '../mesh/wire-shape.ts'
import { mayEndPaused } from './connector.ts'
import { WireShapers } from './shaper.ts'

/** Waiting bytes above this limit stop reading from the server. */
const MOST_WAITING = 64 * 1024

/** A connection to a server with replies shaped by faults; requests pass unchanged. */
class ShapedConnection extends Duplex {
  readonly #socket: Socket
  readonly #shapers: WireShapers
  /** Whether the reader's buffer is full. */
  #isFull = false

  constructor(socket: Socket, shapes: readonly WireShape[]) {
    super()
    this.#socket = socket
    const shapers = new WireShapers(shapes, {
      pass: (bytes, passed) => {
        if (bytes.length > 0 && !this.push(bytes)) this.#isFull = true
        passed?.()
      },
      reset: () => {
        resetNow(socket)
        const error = Object.assign(new Error('read ECONNRESET'), { code: 'ECONNRESET' })
        // By the next turn the reader has all passed bytes.
        void nextTurn().then(() => this.destroy(error))
      },
      close: () => {
        this.push(null)
        socket.destroy()
      },
    })
    this.#shapers = shapers
    socket.on('data', (chunk: Buffer) => {
      shapers.push(chunk, () => this.#readOn())
      if (this.#isFull || shapers.waiting > MOST_WAITING) socket.pause()
    })
    socket.on('end', () => shapers.end())
    socket.on('error', (error) => this.destroy(error))
    socket.on('close', () => shapers.end())
  }

  override _read(): void {
    this.#isFull = false
    this.#readOn()
  }

  #readOn(): void {
    if (!this.#isFull && this.#shapers.waiting <= MOST_WAITING) this.#socket.resume()
  }

  override _write(chunk: Buffer, encoding: BufferEncoding, done: (error?: Error | null) => void): void {
    this.#socket.write(chunk, encoding, done)
  }

  override _final(done: (error?: Error | null) => void): void {
    this.#socket.end(done)
  }

  override _destroy(error: Error | null, done: (error?: Error | null) => void): void {
    this.#shapers.stop()
    this.#socket.destroy()
    done(error)
  }
}

/**
 * Resets a connection. `resetAndDestroy` alone would end the connection normally first. A TLS connection can only be
 * closed without the closing alert: its peer still sees that the connection was cut off. A connection that is already
 * ending would ignore a reset and never close, so it is destroyed.
 */
export function resetNow(socket: Socket): void {
  if (socket instanceof TLSSocket || socket.writableEnded) return void socket.destroy()
  socket.destroySoon = () => void socket.destroy()
  socket.resetAndDestroy()
}

/** Sends each call over a separate connection, with at most `connections` at once; further calls wait. */
export class ShapedCalls {
  readonly #origin: string
  readonly #connections: number
  readonly #options: Client.Options
  readonly #connect: buildConnector.BuildOptions
  readonly #open = new Set<Client>()
  readonly #waiting: (() => void)[] = []
  #isClosed = false

  constructor(
    origin: string,
    connections: number,
    options: Client.Options,
    connect: buildConnector.BuildOptions,
  ) {
    this.#origin = origin
    this.#connections = connections
    this.#options = options
    this.#connect = connect
  }

  dispatch(
    request: Dispatcher.DispatchOptions,
    reply: Dispatcher.DispatchHandler,
    shapes: readonly WireShape[],
  ): void {
    const send = () => this.#send(request, reply, shapes)
    if (this.#open.size < this.#connections || this.#isClosed) send()
    else this.#waiting.push(send)
  }

  #send(
    request: Dispatcher.DispatchOptions,
    reply: Dispatcher.DispatchHandler,
    shapes: readonly WireShape[],
  ): void {
    const connect = shapedConnector(this.#connect, shapes)
    const client = new Client(this.#origin, { ...this.#options, pipelining: 1, connect })
    this.#open.add(client)
    const over = () => {
      if (this.#open.delete(client)) this.#waiting.shift()?.()
    }
    if (this.#isClosed) void client.destroy()
    client.dispatch(request, reply)
    // Runs once the reply is over; at once without a connection.
    client.close().then(over, over)
  }

  /** Drops all open and waiting calls. */
  async destroy(): Promise<void> {
    this.#isClosed = true
    for (const send of this.#waiting.splice(0)) send()
    await Promise.all([...this.#open].map((client) => client.destroy()))
  }
}

/** Returns undici's connector with these options; its connections change replies as `shapes` demand. */
function shapedConnector(
  options: buildConnector.BuildOptions,
  shapes: readonly WireShape[],
): buildConnector.connector {
  const connect = buildConnector(options)
  return (target, done) => {
    connect(target, (error, socket) => {
      if (error !== null) return done(error, null)
      const connection = new ShapedConnection(socket, shapes)
      mayEndPaused(connection)
      // undici uses only its stream interface.
      done(null, connection as unknown as Socket)
    })
  }
}
