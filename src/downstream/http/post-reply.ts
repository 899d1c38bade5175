import type { ServerResponse } from 'node:http'
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

/** A client that has been gone for so long, in milliseconds, has not just lost its connection. */
const ABANDONED_MS: Millis = 1_000

/**
 * The reply to one POST: JSON, unless something has to travel before the answer, or the answer is long in coming; then a stream of events. A
 * client that takes no events gets messages before its answer by the stream of its session, if it listens to that.
 */
export class PostReply implements OpenReply, ChannelWire {
  readonly mostQuietLooks = REPLY_LOOKS
  quietLooks = 0
  isOpen = false
  older: OpenReply | undefined
  newer: OpenReply | undefined
  readonly #session: Session
  readonly #response: ServerResponse
  readonly #clock: Clock
  readonly #isBatch: boolean
  /** The calls of the POST that hold no slot when their client is gone. */
  readonly #watched: CallRecord[] = []
  #shaped: ShapedReply | undefined
  #stream: EventStream | undefined

  /** `isBatch`: the POST holds a batch, and so does the reply. */
  constructor(session: Session, response: ServerResponse, clock: Clock, isBatch: boolean) {
    this.#session = session
    this.#response = response
    this.#clock = clock
    this.#isBatch = isBatch
  }

  /** Whether it takes long to put a response on the wire: a large text has to become bytes first. */
  takesLong(response: Response): boolean {
    return (this.#stream !== undefined || !LargeMessage.is(response)) && isLarge(response)
  }

  /** A response that takes long, in a turn of its own, as it is best kept until all those of a batch are there: as bytes. */
  ready(response: Response): Response {
    const isPart = this.#isBatch && this.#stream === undefined && response.status === 200
    return isPart && response.wire === undefined ? LargeMessage.of(response) : response
  }

  /** The channel of one of the POST's requests, for what `server` sends. */
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

  /** Begins a stream for an answer that is long in coming, if the client reads one: from then on the stream says by itself that it is alive. */
  keepAlive(): void {
    if (!maySpeakUp(this.#response)) return
    this.#open()
    this.#response.write(COMMENT)
  }

  /**
   * Has a call hold no slot for longer than a moment once its client has closed the connection. In the legacy era that cancels nothing, and the
   * client may come back to a stream; but agents that die in a call that hangs must not keep others out.
   */
  watch(record: CallRecord): void {
    // One listener however many requests a batch holds: Node warns of more than ten.
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
   * Ends the POST with the answers to its requests, except to those that were taken back: one as it is, several of a batch in order. A
   * promise where that takes several turns.
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

  /** Sends answers as events, of several each large one in a turn of its own. */
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

  /** Nobody would ever see a question where nobody listens, and nobody waits for the refusal. */
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

/** Whether it takes long to put the text of a response on the wire. */
export function isLarge(response: Response): boolean {
  return LargeMessage.is(response) || response.text.length >= LARGE_TEXT
}

/** Whether a client takes its answers as events only. */
const wantsEvents = (response: ServerResponse) => !acceptedBy(response.req.headers.accept).json

/** Sends a complete JSON reply, or for a client that takes none the same as an event; does nothing when the client is gone. */
export function sendJson(
  response: ServerResponse,
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

/** Ends a reply without an answer: with a stream that has no events, or for a client that takes none without a body. */
function sendNothing(response: ServerResponse): void {
  if (response.destroyed || response.headersSent) return
  if (acceptedBy(response.req.headers.accept).events)
    response.writeHead(200, { 'content-type': EVENT_STREAM })
  else response.writeHead(202)
  response.end()
}

/** Sends one response as a complete JSON reply: a large one as its server sent it, byte for byte. */
export function sendResponse(response: ServerResponse, reply: Response): void {
  if (LargeMessage.is(reply) && !wantsEvents(response)) {
    madeOf(response, reply.chunks)
    sendBytes(response, reply.status, reply.chunks)
  } else sendJson(response, reply.status, reply.text, reply.headers)
}

/** Sends the responses to a batch, in order: large ones are bytes, for their texts together may be longer than a text can be. */
function sendBatch(response: ServerResponse, replies: readonly Response[]): void {
  if (!replies.some((reply) => LargeMessage.is(reply)) || wantsEvents(response))
    return sendJson(response, 200, `[${replies.map(({ text }) => text).join()}]`)
  const chunks = replies.flatMap((reply, index) => [
    Buffer.from(index === 0 ? '[' : ','),
    ...(LargeMessage.is(reply) ? reply.chunks : [Buffer.from(reply.text)]),
  ])
  sendBytes(response, 200, [...chunks, Buffer.from(']')])
}

function sendBytes(response: ServerResponse, status: number, chunks: readonly Buffer[]): void {
  if (response.destroyed || response.headersSent) return
  const length = chunks.reduce((sum, chunk) => sum + chunk.length, 0)
  response.writeHead(status, { 'content-type': 'application/json', 'content-length': length })
  // All of them go to the socket in one write.
  response.cork()
  for (const chunk of chunks) response.write(chunk)
  response.end()
}

/** Puts a reply on the agent's wire as a fault wants it there: another status, bytes that are no JSON-RPC, no reply at all. */
export function putOnWire(
  response: ServerResponse,
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
 * The messages of a response in a stream of events that has begun. A fault that wants other bytes gets them as a message of its own; one that
 * wants another HTTP status, for which it is too late, leaves the error.
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

/** Why a request goes no further: an HTTP status, and the text of a JSON-RPC error. */
export interface Refusal {
  readonly status: number
  readonly text: string
}

/** `id` is null when the request has none that could be read. */
export function refusal(
  status: number,
  id: RequestId | null,
  code: number,
  message: string,
  data?: unknown,
): Refusal {
  return { status, text: errorText(id, code, message, data) }
}

/** Answers a request with its refusal: there is nothing more to wait for. */
export function refuse({ response }: InboundRequest, { status, text }: Refusal): undefined {
  sendJson(response, status, text)
}
