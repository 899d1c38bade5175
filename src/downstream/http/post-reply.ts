import type { Answer, CallRecord, Channel, Message, WireReply } from '../../mesh/call.ts'
import { ignore } from '../../mesh/cancel.ts'
import type { Clock, Millis } from '../../mesh/clock.ts'
import { abandon } from '../../mesh/pause-deadline.ts'
import { ownTurn } from '../../mesh/turns.ts'
import type { ChannelWire, WireShape } from '../../mesh/wire-shape.ts'
import { during, LARGE_TEXT } from '../../mesh/work.ts'
import { errorText, METHOD_NOT_FOUND, type RequestId } from '../../protocol/jsonrpc.ts'
import { LargeMessage } from '../../protocol/large-message.ts'
import { encodeEvent, SseDecoder } from '../../protocol/sse.ts'
import { acceptedBy } from '../accept.ts'
import type { EventStream } from './event-stream.ts'
import { underKeptId } from '../exact-id.ts'
import { COMMENT, maySpeakUp, type OpenReply, REPLY_LOOKS } from '../keep-alive.ts'
import { resetNow } from '../../wire/shaped-connection.ts'
import type { Response } from '../respond.ts'
import type { Session } from '../legacy/session.ts'
import { ShapedReply } from '../../wire/shaped-reply.ts'
import { forWire, madeOf } from './unread-replies.ts'
import type { InboundRequest } from '../endpoint.ts'
import type { HttpReply } from '../../wire/http-reply.ts'

/** Time to reconnect, in milliseconds. A client that has not reconnected after this time counts as gone. */
const ABANDONED_MS: Millis = 1_000

/**
 * The reply to a POST: JSON, or an event stream when a message precedes the answer or the answer takes long. A client
 * that accepts no events gets messages before the answer over its session's stream, if that stream is open.
 */
export class PostReply implements OpenReply, ChannelWire {
  readonly mostQuietLooks = REPLY_LOOKS
  quietLooks = 0
  isOpen = false
  older: OpenReply | undefined
  newer: OpenReply | undefined
  readonly #session: Session
  readonly #response: HttpReply
  readonly #clock: Clock
  readonly #isBatch: boolean
  /** Calls of the POST that lose their place among the calls in progress when the client is gone. */
  readonly #watched: CallRecord[] = []
  #shaped: ShapedReply | undefined
  #stream: EventStream | undefined

  /** `isBatch`: the POST, and so the reply, is a batch. */
  constructor(session: Session, response: HttpReply, clock: Clock, isBatch: boolean) {
    this.#session = session
    this.#response = response
    this.#clock = clock
    this.#isBatch = isBatch
  }

  /** True when writing a response takes long: a large text must be converted to bytes first. */
  takesLong(response: Response): boolean {
    return (this.#stream !== undefined || !LargeMessage.is(response)) && isLarge(response)
  }

  /**
   * Converts a response of a batch to bytes, to be kept until the batch is complete. Returns other responses unchanged.
   */
  ready(response: Response): Response {
    const isPart = this.#isBatch && this.#stream === undefined && response.status === 200
    return isPart && response.wire === undefined ? LargeMessage.of(response) : response
  }

  /** Returns the channel of a request of the POST, for messages from `server`. */
  channelFor(server: string, record: CallRecord): Channel {
    return {
      open: () => {
        if (this.#takesEvents) this.#open()
      },
      pause: (retryMs, askNow) => {
        if (this.#session.primes) this.#stream?.pause(retryMs, askNow)
      },
      send: (message: Message, answer?: Answer) => {
        if (!this.#takesEvents) return void this.#pastReply(server, message, answer)
        const text = this.#session.textFor(server, message, answer, record)
        if (text === undefined) return undefined
        record.firstByteAt ??= this.#clock.now()
        return this.#open().send(text)
      },
      wire: this,
    }
  }

  shape(shape: WireShape): boolean {
    this.#shaped ??= new ShapedReply(this.#response, () => this.#session.wrote(this.#response))
    return this.#shaped.add(shape)
  }

  get framing(): number {
    return this.#stream?.framing ?? 0
  }

  /**
   * Starts an event stream and sends a keep-alive comment, because the answer takes long. Does nothing if the client
   * accepts no events.
   */
  keepAlive(): void {
    if (!maySpeakUp(this.#response)) return
    this.#open()
    this.#response.write(COMMENT)
  }

  /**
   * Abandons a call one second after its client closed the connection, unless the client has resumed the stream. In the
   * legacy era, closing the connection does not cancel a call. But calls of agents that have ended must not block other
   * calls.
   */
  watch(record: CallRecord): void {
    // Adds one listener for a batch of any size, because Node warns above ten listeners.
    if (this.#watched.push(record) > 1) return
    this.#session.keepAlive.add(this)
    this.#response.on('close', () => {
      this.#session.keepAlive.delete(this)
      if (this.#response.writableFinished || this.#watched.every(({ isOver }) => isOver)) return
      this.#clock.after(ABANDONED_MS, () => {
        if (this.#stream?.attached === true) return
        for (const watched of this.#watched) if (!watched.isOver) abandon(watched)
      })
    })
  }

  /**
   * Sends the answers and ends the POST; leaves out answers to cancelled requests. Sends the answers of a batch in
   * their order. Returns a promise when this takes several turns.
   */
  finish(all: readonly Response[]): Promise<void> | void {
    this.#session.keepAlive.delete(this)
    const responses = all.filter(({ isTakenBack, wire }) => isTakenBack !== true || wire !== undefined)
    const wire = responses.find(({ wire }) => wire !== undefined && wire.end !== 'shape')?.wire
    if (wire !== undefined && (this.#stream === undefined || wire.end === 'reset')) {
      putOnWire(this.#response, wire)
      if (this.#stream !== undefined) this.#session.streams.close(this.#stream)
      return
    }
    if (this.#stream !== undefined) return this.#sendOver(this.#stream, responses)
    const [first] = responses
    if (first === undefined) sendNothing(this.#response)
    else if (this.#isBatch) sendBatch(this.#response, responses)
    else sendResponse(this.#response, first)
    this.#session.wrote(this.#response)
  }

  /** Sends answers as events. With several answers, sends each large answer in a separate turn. */
  #sendOver(stream: EventStream, responses: readonly Response[]): Promise<void> | void {
    if (responses.length > 1 && responses.some(isLarge)) return this.#sendInTurns(stream, responses)
    for (const response of responses) sendMessages(stream, response)
    this.#session.streams.close(stream, responses.length > 0)
  }

  async #sendInTurns(stream: EventStream, responses: readonly Response[]): Promise<void> {
    for (const response of responses) {
      if (isLarge(response)) await ownTurn(this.#session.client)
      during('reply', () => sendMessages(stream, response))
    }
    this.#session.streams.close(stream)
  }

  /**
   * Sends a message over the session's own stream. Refuses a question when that stream is closed; does not wait until
   * the refusal is sent.
   */
  #pastReply(server: string, message: Message, answer?: Answer): void {
    const session = this.#session
    if (answer === undefined || session.streams.standalone.attached) session.receive(server, message, answer)
    else void answer(errorText(null, METHOD_NOT_FOUND, 'the client takes no events')).catch(ignore)
  }

  get #takesEvents(): boolean {
    return acceptedBy(this.#response.req.headers.accept).events
  }

  #open(): EventStream {
    if (this.#stream !== undefined) return this.#stream
    this.#session.keepAlive.delete(this)
    return (this.#stream = this.#session.streams.open(this.#response))
  }
}

/** True when writing the text of a response takes long. */
export function isLarge(response: Response): boolean {
  return LargeMessage.is(response) || response.text.length >= LARGE_TEXT
}

/** True when a client accepts answers only as events. */
const wantsEvents = (response: HttpReply) => !acceptedBy(response.req.headers.accept).json

/** Sends a complete JSON reply, or an event to a client that accepts no JSON; does nothing when the client is gone. */
export function sendJson(
  response: HttpReply,
  status: number,
  text: string,
  headers: Readonly<Record<string, string>> = {},
): void {
  if (response.destroyed || response.headersSent) return
  const isEvent = status === 200 && wantsEvents(response)
  const own = underKeptId(response, text)
  const body = forWire(isEvent ? encodeEvent(own) : own)
  response.writeHead(status, {
    'content-type': isEvent ? 'text/event-stream' : 'application/json',
    'content-length': Buffer.byteLength(body),
    ...headers,
  })
  response.end(body)
}

/**
 * Ends a reply without an answer: with an empty event stream if the client accepts events, otherwise without a body.
 */
function sendNothing(response: HttpReply): void {
  if (response.destroyed || response.headersSent) return
  if (acceptedBy(response.req.headers.accept).events)
    response.writeHead(200, { 'content-type': EVENT_STREAM })
  else response.writeHead(202)
  response.end()
}

/** Sends a response as a complete JSON reply; sends the bytes of a large response unchanged. */
export function sendResponse(response: HttpReply, reply: Response): void {
  if (LargeMessage.is(reply) && !wantsEvents(response)) {
    madeOf(response, reply.chunks)
    sendBytes(response, reply.status, reply.chunks)
  } else sendJson(response, reply.status, reply.text, reply.headers)
}

/**
 * Sends the responses to a batch, in order. Sends large responses as bytes, because the joined text may exceed the
 * longest string.
 */
function sendBatch(response: HttpReply, replies: readonly Response[]): void {
  if (!replies.some((reply) => LargeMessage.is(reply)) || wantsEvents(response))
    return sendJson(response, 200, `[${replies.map(({ text }) => text).join()}]`)
  const chunks = replies.flatMap((reply, index) => [
    Buffer.from(index === 0 ? '[' : ','),
    ...(LargeMessage.is(reply) ? reply.chunks : [Buffer.from(reply.text)]),
  ])
  sendBytes(response, 200, [...chunks, Buffer.from(']')])
}

function sendBytes(response: HttpReply, status: number, chunks: readonly Buffer[]): void {
  if (response.destroyed || response.headersSent) return
  const length = chunks.reduce((sum, chunk) => sum + chunk.length, 0)
  response.writeHead(status, { 'content-type': 'application/json', 'content-length': length })
  // Sends all chunks in one socket write.
  response.cork()
  for (const chunk of chunks) response.write(chunk)
  response.end()
}

/**
 * Sends the reply that a fault has made: with another status, with bytes that are not JSON-RPC, or with a broken
 * connection.
 */
export function putOnWire(
  response: HttpReply,
  { status = 200, headers = {}, body = '', end }: WireReply,
): void {
  if (response.destroyed || response.writableEnded) return
  if (end === 'reset') {
    resetNow(response.req.socket)
    return
  }
  if (!response.headersSent) {
    const { 'content-length': _, ...rest } = headers
    response.writeHead(status, { ...rest, 'content-length': Buffer.byteLength(body) })
  }
  response.end(body)
}

/**
 * Returns the messages of a response for an open event stream. Bytes of a fault become a separate message. A fault
 * cannot change the HTTP status of an open stream; the agent then gets the error.
 */
export function asMessages({ text, wire }: Response): string[] {
  if (wire === undefined || wire.end === 'shape') return [text]
  const { status = 200, headers, body = '' } = wire
  if (status >= 300) return [text]
  if (headers?.['content-type'] !== EVENT_STREAM) return [body]
  const messages: string[] = []
  new SseDecoder(Infinity, ({ data }) => messages.push(data)).feed(Buffer.from(body))
  return messages
}

const EVENT_STREAM = 'text/event-stream'

function sendMessages(stream: EventStream, response: Response): void {
  for (const text of asMessages(response)) void stream.send(text)
}

/** The refusal of a request: an HTTP status and the text of a JSON-RPC error. */
export interface Refusal {
  readonly status: number
  readonly text: string
}

/** Returns a refusal. `id` is null when the request has no readable id. */
export function refusal(
  status: number,
  id: RequestId | null,
  code: number,
  message: string,
  data?: unknown,
): Refusal {
  return { status, text: errorText(id, code, message, data) }
}

/** Answers a request with its refusal. */
export function refuse({ response }: InboundRequest, { status, text }: Refusal): undefined {
  sendJson(response, status, text)
}
