import type { Socket } from 'node:net'
import { type buildConnector, Pool } from 'undici'
import { endOfTurn, nextTurn, systemClock, type Millis } from '../../mesh/clock.ts'
import { LARGE_TEXT } from '../../mesh/work.ts'
import { connectorOf, socketsOf } from '../../wire/connector.ts'
import { type CallHandler, type CallRequest, type Calls, PooledCalls, SLICE_BYTES } from './calls.ts'
import type { HttpReply } from './http-reply.ts'
import { KEEP_MS, type ReplyHead } from './reply-head.ts'
import { type ReplyFault, ReplyReader } from './reply-reader.ts'
import { RequestHeads } from './request-heads.ts'

/** The engine that reads and writes HTTP/1.1: our own (`own`), or that of Node and undici (`node`). */
export type HttpEngineName = 'own' | 'node'

export interface CallSocketsOptions {
  /** Most sockets. */
  readonly connections: number
  /** Longest wait for the head of a reply, and longest silence within a body; in milliseconds. 0: no limit. */
  readonly headersTimeout: Millis
  readonly bodyTimeout: Millis
  readonly connect: buildConnector.BuildOptions
}

/** Returns the sockets for calls to a server. */
export function callsTo(origin: string, options: CallSocketsOptions, engine: HttpEngineName = 'node'): Calls {
  return engine === 'own' ? new CallSockets(origin, options) : pooled(origin, options)
}

const pooled = (origin: string, { connect, ...options }: CallSocketsOptions) =>
  new PooledCalls(new Pool(origin, { ...options, pipelining: 1, connect: connectorOf(connect) }))

/** Interval between looks at all sockets: silence is known to this accuracy, in milliseconds. */
const LOOK_MS: Millis = 500

interface Waiting {
  readonly request: CallRequest
  readonly head: string
  readonly reply: CallHandler
}

/**
 * Sockets for calls that read and write HTTP/1.1 themselves, with one call at a time on each. A waiting call gets the
 * first free socket, in order. Requests with headers that change the connection itself go through undici.
 */
export class CallSockets implements Calls {
  readonly #options: CallSocketsOptions
  readonly #connect: buildConnector.connector
  readonly #origin: URL
  readonly #heads: RequestHeads
  /** For requests whose head `RequestHeads` does not write. */
  #others: PooledCalls | undefined
  readonly #open = new Set<CallSocket>()
  /** The last used comes first: the others may end idle. */
  readonly #free: CallSocket[] = []
  #waiting: Waiting[] = []
  /** Index of the first waiting call. */
  #first = 0
  #connecting = 0
  #isPairing = false
  #isLooking = false
  #isDestroyed = false

  constructor(origin: string, options: CallSocketsOptions) {
    this.#origin = new URL(origin)
    this.#options = options
    this.#connect = socketsOf(options.connect)
    this.#heads = new RequestHeads(this.#origin.host)
  }

  dispatch(request: CallRequest, reply: HttpReply): void {
    if (this.#isDestroyed) return reply.onError(broken('UND_ERR_DESTROYED', 'the sockets are closed'))
    const head = this.#heads.of(request)
    if (head === undefined)
      return (this.#others ??= pooled(this.#origin.origin, this.#options)).dispatch(request, reply)
    this.#waiting.push({ request, head, reply })
    this.#pairLater()
  }

  async destroy(): Promise<void> {
    this.#isDestroyed = true
    const waiting = this.#waiting.splice(0).slice(this.#first)
    this.#first = 0
    for (const { reply } of waiting) reply.onError(broken('UND_ERR_DESTROYED', 'the sockets are closed'))
    await Promise.all([this.#others?.destroy(), ...[...this.#open].map((socket) => socket.close())])
  }

  get #waits(): number {
    return this.#waiting.length - this.#first
  }

  /**
   * Gives waiting calls to sockets once the event loop has read all pending input: bytes or an end that a server sent to
   * an idle socket must be seen before the socket is used again, or they would count as the next reply.
   */
  #pairLater(): void {
    if (this.#isPairing) return
    this.#isPairing = true
    endOfTurn(this.#pair)
  }

  readonly #pair = (): void => {
    this.#isPairing = false
    while (this.#waits > 0) {
      const socket = this.#free.pop()
      if (socket === undefined) break
      if (socket.isUsable && !socket.send(this.#next())) this.#free.push(socket)
    }
    const { connections } = this.#options
    while (this.#connecting < this.#waits && this.#open.size + this.#connecting < connections) this.#begin()
  }

  #next(): Waiting {
    const next = this.#waiting[this.#first]!
    this.#waiting[this.#first++] = undefined as never
    if (this.#first * 2 > this.#waiting.length) {
      this.#waiting = this.#waiting.slice(this.#first)
      this.#first = 0
    }
    return next
  }

  #begin(): void {
    this.#connecting++
    const { hostname, host, protocol, port } = this.#origin
    const target = { hostname: hostname.replace(/^\[|\]$/g, ''), host, protocol, port }
    this.#connect(target, (error, socket) => {
      this.#connecting--
      if (this.#isDestroyed) return void socket?.destroy()
      if (error !== null) {
        if (this.#waits > 0) this.#next().reply.onError(error)
      } else {
        const own = new CallSocket(socket, this.#options, this.#freed, this.#gone)
        this.#open.add(own)
        this.#free.push(own)
        this.#lookLater()
      }
      this.#pair()
    })
  }

  readonly #freed = (socket: CallSocket): void => {
    this.#free.push(socket)
    if (this.#waits > 0) this.#pairLater()
  }

  readonly #gone = (socket: CallSocket): void => {
    this.#open.delete(socket)
    const at = this.#free.lastIndexOf(socket)
    if (at !== -1) this.#free.splice(at, 1)
    if (this.#waits > 0) this.#pairLater()
  }

  /** Looks at all sockets while there are any: one timer for all. */
  #lookLater(): void {
    if (this.#isLooking) return
    this.#isLooking = true
    systemClock.after(LOOK_MS, () => {
      this.#isLooking = false
      for (const socket of this.#open) socket.look(LOOK_MS)
      if (this.#open.size > 0) this.#lookLater()
    })
  }
}

const broken = (code: string, message: string): Error => Object.assign(new Error(message), { code })

/** A socket with at most one call. */
class CallSocket {
  readonly #socket: Socket
  readonly #options: CallSocketsOptions
  readonly #freed: (socket: CallSocket) => void
  readonly #reader = new ReplyReader(this)
  /** The reply of the call under way. */
  #reply: CallHandler | undefined
  /** Whether the call under way is on the socket. */
  #isSent = false
  #isWriting = false
  /** How long the idle socket may be used again. */
  #keepMs: Millis = KEEP_MS
  /** Time without a byte, in milliseconds: at least as long as counted. */
  #quietMs: Millis = 0
  #hasMoved = true
  #error: Error | undefined
  /** Whether the server's side has ended while the reading was paused. */
  #hasEnded = false

  constructor(
    socket: Socket,
    options: CallSocketsOptions,
    freed: (socket: CallSocket) => void,
    gone: (socket: CallSocket) => void,
  ) {
    this.#socket = socket
    this.#options = options
    this.#freed = freed
    socket.on('data', this.#onData)
    socket.on('end', this.#onEnd)
    socket.on('error', (error) => (this.#error ??= error))
    socket.once('close', () => {
      gone(this)
      // Bytes that came before the end are still to be read.
      if (this.#hasEnded && this.#error === undefined) return
      this.#fail(this.#error ?? broken('UND_ERR_SOCKET', 'closed'))
    })
  }

  /** Whether a call may be sent. */
  get isUsable(): boolean {
    return !this.#socket.destroyed && this.#socket.writable
  }

  /** Sends a call; returns false when the call was dropped before. */
  send({ request, head, reply }: Waiting): boolean {
    this.#reply = reply
    reply.onConnect((cause) => {
      if (this.#reply !== reply) return
      if (this.#isSent) this.#socket.destroy()
      this.#fail(cause ?? broken('UND_ERR_ABORTED', 'aborted'))
    })
    if (this.#reply !== reply) return false
    this.#isSent = true
    this.#reader.begin()
    this.#hasMoved = true
    const { body = '' } = request
    if (body.length < LARGE_TEXT) this.#socket.write(head + body)
    else void this.#writeSlices(head, Buffer.from(body), reply)
    return true
  }

  async #writeSlices(head: string, body: Buffer, reply: CallHandler): Promise<void> {
    const socket = this.#socket
    this.#isWriting = true
    socket.write(head)
    for (let at = 0; at < body.length; at += SLICE_BYTES) {
      if (at > 0) await nextTurn()
      if (this.#reply !== reply || socket.destroyed) return
      if (!socket.write(body.subarray(at, at + SLICE_BYTES))) await drained(socket)
    }
    this.#isWriting = false
  }

  /** Closes the socket, and resolves once it is closed. */
  close(): Promise<void> {
    this.#error = broken('UND_ERR_DESTROYED', 'the sockets are closed')
    return new Promise((resolve) => {
      if (this.#socket.closed) return resolve()
      this.#socket.once('close', () => resolve())
      this.#socket.destroy()
    })
  }

  /** Counts time; ends a reply or an idle socket that has been silent for too long. */
  look(passedMs: Millis): void {
    this.#quietMs = this.#hasMoved ? 0 : this.#quietMs + passedMs
    this.#hasMoved = false
    const { headersTimeout, bodyTimeout } = this.#options
    if (this.#reply === undefined) {
      if (this.#quietMs >= this.#keepMs) this.#socket.destroy()
    } else if (this.#reader.awaitsHead) {
      if (this.#isWriting && !this.#socket.writableNeedDrain) return
      if (headersTimeout > 0 && this.#quietMs >= headersTimeout)
        this.#break(broken('UND_ERR_HEADERS_TIMEOUT', 'Headers Timeout Error'))
    } else if (bodyTimeout > 0 && !this.#reader.isPaused && this.#quietMs >= bodyTimeout)
      this.#break(broken('UND_ERR_BODY_TIMEOUT', 'Body Timeout Error'))
  }

  head({ status, headers, keepMs }: ReplyHead): boolean {
    const reply = this.#reply
    if (reply === undefined) return true
    if (status >= 200) this.#keepMs = keepMs
    return reply.onReply(status, headers, () => this.#resume(reply))
  }

  data(bytes: Buffer): boolean {
    return this.#reply?.onData(bytes) ?? true
  }

  complete(): void {
    const reply = this.#reply
    this.#reply = undefined
    this.#isSent = false
    try {
      reply?.onComplete()
    } catch (cause) {
      reply?.onError(cause as Error)
    }
    if (this.#socket.destroyed) return
    // A reply that came before its request was written leaves a half request on the socket.
    if (this.#isWriting || this.#keepMs === 0) this.#socket.destroy()
    else {
      if (this.#socket.isPaused()) this.#socket.resume()
      this.#freed(this)
    }
  }

  readonly #onData = (bytes: Buffer): void => {
    this.#hasMoved = true
    this.#go(() => this.#reader.read(bytes))
  }

  /** Reads on. An error of the taker ends the call only. */
  #go(read: () => ReplyFault | undefined): void {
    try {
      this.#after(read())
    } catch (cause) {
      this.#break(cause as Error)
    }
  }

  #resume(reply: CallHandler): void {
    if (this.#reply !== reply || !this.#reader.isPaused) return
    this.#hasMoved = true
    this.#go(() => this.#reader.resume())
  }

  #after(fault: ReplyFault | undefined): void {
    if (fault !== undefined) return this.#break(broken(fault, 'the reply does not match HTTP/1.1'))
    if (this.#hasEnded && !this.#reader.isPaused) {
      this.#hasEnded = false
      this.#onEnd()
    } else if (this.#reader.isPaused) this.#socket.pause()
    else if (this.#socket.isPaused()) this.#socket.resume()
  }

  readonly #onEnd = (): void => {
    if (this.#reader.isPaused) this.#hasEnded = true
    else if (!this.#reader.end()) this.#break(broken('UND_ERR_SOCKET', 'other side closed'))
  }

  /** Ends the socket with an error, and with it the call. */
  #break(error: Error): void {
    this.#error ??= error
    if (this.#socket.closed) this.#fail(error)
    else this.#socket.destroy()
  }

  #fail(error: Error): void {
    const reply = this.#reply
    this.#reply = undefined
    if (this.#isSent) this.#reader.stop()
    this.#isSent = false
    reply?.onError(error)
  }
}

function drained(socket: Socket): Promise<void> {
  return new Promise((resolve) => {
    const done = () => {
      socket.off('drain', done).off('close', done)
      resolve()
    }
    socket.on('drain', done).on('close', done)
  })
}
