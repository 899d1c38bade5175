import type { Socket } from 'node:net'
import { END_OF_HEAD } from '../../../wire/http-head.ts'
import { LONGEST_USUAL_HEAD, readUsualRequest, type UsualRequest } from '../../../wire/http-request.ts'
import type { Millis } from '../../../mesh/clock.ts'
import { ignore } from '../../../mesh/cancel.ts'
import { clientOf } from '../../limits/quotas.ts'
import { MAX_PIPELINED } from '../server.ts'
import type { EngineCore, OpenConnection, Target } from './core.ts'
import { OwnReply, type ReplyCarrier } from './reply.ts'
import { RequestBody } from './request-body.ts'

const restOf = (chunk: Buffer, from: number) => (from === 0 ? chunk : chunk.subarray(from))

const END = Buffer.from(END_OF_HEAD)

/** Most bytes that wait for the end of open replies, before Node's server gets them. */
const MOST_HELD = 64 * 1024

/** Longest head that a connection keeps for its next request, in bytes. */
const LONGEST_KEPT_HEAD = 2 * 1024

/** The head of the last request, with the results of reading it. */
interface Head {
  readonly text: string
  readonly request: UsualRequest
  readonly target: Target
}

/**
 * A connection of an agent, as long as its requests are usual. The first other request, and all that follows, goes to
 * Node's server, which never gives the connection back.
 */
export class Connection implements OpenConnection, ReplyCarrier {
  readonly #core: EngineCore
  readonly #socket: Socket
  readonly #client: string
  #head: Head | undefined
  /** The body that is arriving. */
  #body: RequestBody | undefined
  /** The open replies; only the first has the socket. */
  readonly #replies: OwnReply[] = []
  /** Bytes for Node's server, which gets them after the end of the open replies. */
  #held: Buffer[] | undefined
  #heldBytes = 0
  /** True while the client does not read, so that no further request is read. */
  #isPaused = false
  /** Time since the last request or reply, in milliseconds, as of the last check of idle connections. */
  idleMs: Millis = 0
  /** True after the first request. */
  isUsed = false

  constructor(core: EngineCore, socket: Socket) {
    this.#core = core
    this.#socket = socket
    this.#client = clientOf(socket.remoteAddress)
    socket.on('data', this.#onData)
    socket.on('end', this.#onEnd)
    socket.on('drain', this.#onDrain)
    socket.on('error', ignore)
    socket.on('close', this.#onClose)
  }

  /** True when no request is open. */
  get isIdle(): boolean {
    return this.#replies.length === 0 && this.#body === undefined
  }

  get staysOpen(): boolean {
    return this.#core.server.listening || this.#replies.length > 1
  }

  keptLines(): string {
    return this.#core.keptLines
  }

  dateLine(): string {
    return this.#core.dateLine
  }

  keepAliveLine(): string {
    return this.#core.keepAliveLine
  }

  destroy(): void {
    this.#socket.destroy()
  }

  /** Ends a connection that sent no request in time, as Node's server does. */
  timeOut(): void {
    this.#fail('ERR_HTTP_REQUEST_TIMEOUT')
  }

  #fail(code: string): void {
    const { server } = this.#core
    const error = Object.assign(new Error(code), { code })
    if (!server.emit('clientError', error, this.#socket)) this.#socket.destroy()
  }

  readonly #onData = (chunk: Buffer): void => {
    this.idleMs = 0
    let at = 0
    if (this.#body !== undefined) {
      at = this.#fill(this.#body, chunk, 0)
      if (at === chunk.length) return
    }
    if (this.#held !== undefined) return this.#hold(this.#held, chunk)
    do {
      const next = this.#take(chunk, at)
      if (next === -1) return this.#handOver(restOf(chunk, at))
      if (this.#socket.destroyed) return
      at = next
    } while (at < chunk.length)
  }

  /**
   * True when all requests in the rest of a chunk are usual. Otherwise Node's server gets the whole chunk: pipelined
   * requests run together only with the same reader.
   */
  #isUsual(chunk: Buffer, from: number): boolean {
    for (let at = from; at < chunk.length;) {
      const bodyAt = this.#readHead(chunk, at)
      if (bodyAt === -1) return false
      at = bodyAt + this.#head!.request.length
    }
    return true
  }

  /** Takes a request. Returns where the rest of the chunk begins, or -1 for a request that Node's server must read. */
  #take(chunk: Buffer, at: number): number {
    const bodyAt = this.#readHead(chunk, at)
    if (bodyAt === -1) return -1
    const { text, request, target } = this.#head!
    const { headers, length } = request
    // Idle connections keep no large head in memory.
    if (text.length > LONGEST_KEPT_HEAD) this.#head = undefined
    const core = this.#core
    if (!core.server.listening || !core.route.mayTake(target, headers)) return -1
    const end = bodyAt + length
    const isWaiting = this.#replies.length > 0
    if (!isWaiting && !this.#isUsual(chunk, end)) return -1
    if (isWaiting && !this.#mayPipeline()) return this.#cutOff()
    this.isUsed = true
    if (length <= core.route.largestWhole && end <= chunk.length) {
      const whole = { headers, socket: this.#socket, complete: true } as const
      core.route.take(target, this.#reply(whole, isWaiting), this.#client, chunk, bodyAt, end)
      this.#pauseIfUnread()
      return end
    }
    const body = new RequestBody(headers, this.#socket, length, this.#readOn)
    this.#body = body
    core.route.takeParts(target, this.#reply(body, isWaiting), this.#client, body)
    return bodyAt === chunk.length ? bodyAt : this.#fill(body, chunk, bodyAt)
  }

  /** Reads a head into `#head`. Returns where its body begins, or -1 for a head that is not usual. */
  #readHead(chunk: Buffer, at: number): number {
    const end = chunk.indexOf(END, at)
    if (end === -1 || end - at > LONGEST_USUAL_HEAD) return -1
    const text = chunk.toString('latin1', at, end)
    if (text !== this.#head?.text) {
      const request = readUsualRequest(text)
      const target = request && this.#core.route.targetOf(request)
      if (target === undefined) return -1
      this.#head = { text, request: request!, target }
    }
    return end + END.length
  }

  #reply(request: OwnReply['req'], isWaiting: boolean): OwnReply {
    const reply = new OwnReply(request, isWaiting ? null : this.#socket, this)
    this.#replies.push(reply)
    return reply
  }

  /** True when another request may wait for earlier ones; counts it. */
  #mayPipeline(): boolean {
    const { pipelined, refused } = this.#core.quotas
    // The first open reply does not wait.
    const isLong = this.#replies.length > MAX_PIPELINED
    if (isLong) refused('pipelined_per_connection')
    if (isLong || pipelined.refusal(this.#client) !== undefined) return false
    pipelined.take(this.#client)
    return true
  }

  #cutOff(): number {
    this.#socket.destroy()
    return 0
  }

  /** Stops reading further requests while the client does not read replies. */
  #pauseIfUnread(): void {
    if (!this.#socket.writableNeedDrain) return
    this.#isPaused = true
    this.#socket.pause()
  }

  readonly #readOn = (): void => {
    if (!this.#isPaused) this.#socket.resume()
  }

  #fill(body: RequestBody, chunk: Buffer, at: number): number {
    const end = body.add(chunk, at)
    if (!body.complete) return end
    this.#body = undefined
    // A reader that took too long may have paused the socket.
    this.#readOn()
    this.#pauseIfUnread()
    return end
  }

  /** Gives this and all later bytes to Node's server, after the end of the open replies. */
  #handOver(bytes: Buffer): void {
    if (this.#replies.length === 0) return this.#leave(bytes)
    if (!this.#mayPipeline()) return void this.#cutOff()
    this.#hold((this.#held = []), bytes)
  }

  #hold(held: Buffer[], bytes: Buffer): void {
    held.push(bytes)
    this.#heldBytes += bytes.length
    if (this.#heldBytes >= MOST_HELD) this.#socket.pause()
  }

  #leave(bytes: Buffer): void {
    const socket = this.#socket
    socket.off('data', this.#onData)
    socket.off('end', this.#onEnd)
    socket.off('drain', this.#onDrain)
    socket.off('error', ignore)
    socket.off('close', this.#onClose)
    this.#core.forget(this)
    // Pauses first: a stream in flowing mode would not pass the bytes on before more bytes come.
    socket.pause()
    socket.unshift(bytes)
    this.#core.handOver(socket)
    socket.resume()
  }

  /** Handles the last write of the first open reply. */
  readonly written = (error?: Error | null): void => {
    const [reply] = this.#replies
    // After an error or the end of the connection, `close` follows.
    if (error || reply?.writableEnded !== true || this.#socket.destroyed) return
    const socket = this.#socket
    this.idleMs = 0
    reply.finished()
    this.#replies.shift()
    if (reply.isLast) socket.destroySoon()
    else if (this.#replies.length > 0) this.#next()
    else if (this.#held !== undefined) this.#leaveHeld(this.#held)
    reply.closed()
    if (this.#isPaused) this.#resumeIfRead()
  }

  #next(): void {
    this.#core.quotas.pipelined.release(this.#client)
    this.#replies[0]!.takeSocket(this.#socket)
  }

  #leaveHeld(held: Buffer[]): void {
    this.#core.quotas.pipelined.release(this.#client)
    this.#held = undefined
    this.#isPaused = false
    this.#leave(held.length === 1 ? held[0]! : Buffer.concat(held))
  }

  ended(reply: OwnReply): void {
    if (reply.writableLength > 0) this.#core.unread.wrote(reply)
  }

  readonly #onDrain = (): void => {
    this.#replies[0]?.drained()
    if (this.#isPaused) this.#resumeIfRead()
  }

  #resumeIfRead(): void {
    const socket = this.#socket
    if (socket.writableNeedDrain) return
    this.#isPaused = false
    if (this.#heldBytes < MOST_HELD) socket.resume()
  }

  /** Handles the end of the client's bytes as Node's server does: the client has left. */
  readonly #onEnd = (): void => {
    if (this.#body === undefined) this.#socket.end()
    else this.#fail('HPE_INVALID_EOF_STATE')
  }

  readonly #onClose = (): void => {
    this.#core.forget(this)
    this.#body?.abort()
    const replies = this.#replies.splice(0)
    const waiting = Math.max(0, replies.length - 1) + (this.#held === undefined ? 0 : 1)
    for (let count = 0; count < waiting; count++) this.#core.quotas.pipelined.release(this.#client)
    for (const reply of replies) reply.destroyed = true
    for (const reply of replies) reply.closed()
  }
}
