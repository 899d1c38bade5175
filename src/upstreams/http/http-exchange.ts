import { ignore, type Signal } from '../../mesh/cancel.ts'
import type { Channel, Message } from '../../mesh/call.ts'
import type { Cancel, Clock, Millis } from '../../mesh/clock.ts'
import { gatewayError, type GatewayError, type Reason } from '../../mesh/errors.ts'
import { isProgress, progressTokenOf } from '../../mesh/time-limit.ts'
import { TurnBatch } from '../../mesh/turns.ts'
import type { CallWire } from '../../mesh/wire-shape.ts'
import { sizeFault } from '../../protocol/json-parse.ts'
import {
  isIdOf,
  isObject,
  isRequestId,
  kindOf,
  notificationText,
  parseJson,
  type RequestId,
} from '../../protocol/jsonrpc.ts'
import type { LargeMessage } from '../../protocol/large-message.ts'
import type { SseEvent } from '../../protocol/sse.ts'
import {
  type ReplyHeaders,
  isOrphanError,
  isVersionError,
  readLargeReply,
  readReply,
  readStreamed,
  type Reading,
} from './http-status.ts'
import { answerTo, postAway } from './http-post.ts'
import { HttpReply, type ReplyLimits, type ReplySink } from './http-reply.ts'
import type { Conceal } from '../server-words.ts'
import type { HttpWire } from './http-wire.ts'
import type { Skipped } from '../skipped.ts'
import type { Unread } from '../unread.ts'

/** One request, as far as the wire needs to know it. A `Call` gives all of it. */
export interface Request {
  readonly id: RequestId
  readonly text: string
  /** The parsed text; absent for requests of the gateway itself, which ask for no progress. */
  readonly message?: Message
  readonly headers: Readonly<Record<string, string>> | undefined
  readonly signal: Signal
  readonly channel: Channel
  readonly wire?: CallWire | undefined
  /** Noted in it: that the request was handed to a socket, and thus may run. */
  readonly record?: { sent: boolean }
  /** Told each time that it is. */
  readonly onSent?: (() => void) | undefined
}

export interface ExchangeOptions extends ReplyLimits {
  readonly clock: Clock
  /** How long the server may take to acknowledge a message that has no reply, in milliseconds. */
  readonly ackMs: Millis
  /** Where each exchange is until it has ended. */
  readonly underWay: UnderWay
  /** The messages of one upstream session that are posted and not acknowledged. */
  readonly unread: Unread
  /** Told once, with the headers of the reply. */
  readonly onHeaders?: (headers: ReplyHeaders) => void
  /**
   * The server keeps nothing between two requests, as in the modern era: a stream that breaks is lost, a dropped
   * socket is all of a cancellation, and the server asks nothing by itself.
   */
  readonly stateless?: boolean
  /** Takes events that are no message and cannot be the answer. */
  readonly skipped?: Skipped | undefined
  /** Told when the server refused the request for the protocol version that it names. */
  readonly onVersionError?: (() => void) | undefined
}

/** Before a broken stream is resumed, unless the server named a time; in milliseconds. */
const RESUME_MS = 1_000

/**
 * No server gets asked again sooner, whatever time it names, and none more often than that: the pause doubles each
 * time that nothing new has come. In milliseconds.
 */
const LEAST_RESUME_MS = 100
const MOST_RESUME_MS = 30_000

/** How long a server may keep a stream open behind its answer, in milliseconds. */
const LINGER_MS = 1_000

/** Replies that came in one turn of the event loop are read together, and their callers go on together. */
const over = new TurnBatch<HttpExchange>((exchange) => exchange.tell())

/** The exchanges under way of one upstream session: most have one at a time, and between calls, which is when there are thousands of it, none. */
export class UnderWay {
  #only: HttpExchange | undefined
  #others: Set<HttpExchange> | undefined

  add(exchange: HttpExchange): void {
    if (this.#only === undefined) this.#only = exchange
    else {
      this.#others ??= new Set()
      this.#others.add(exchange)
    }
  }

  delete(exchange: HttpExchange): void {
    if (this.#only === exchange) this.#only = undefined
    else this.#others?.delete(exchange)
    if (this.#others?.size === 0) this.#others = undefined
  }

  /** The channel of the only call; those that have `own` for theirs are no calls. Undefined when there are none, or several. */
  onlyChannel(own: Channel): Channel | undefined {
    let only: Channel | undefined
    for (const exchange of [this.#only, ...(this.#others ?? [])]) {
      if (exchange === undefined || exchange.channel === own) continue
      if (only !== undefined) return undefined
      only = exchange.channel
    }
    return only
  }

  /** The channel of the call that a message is progress of; undefined when it is of none, or of several. */
  progressing(message: Pick<Message, 'value'>): Channel | undefined {
    let found: Channel | undefined
    for (const exchange of [this.#only, ...(this.#others ?? [])]) {
      if (exchange === undefined || !isProgress(message, exchange.progressToken)) continue
      if (found !== undefined) return undefined
      found = exchange.channel
    }
    return found
  }

  /** Ends all of them here. */
  abandon(cause: GatewayError): void {
    this.#only?.abandon(cause)
    for (const exchange of this.#others ?? []) exchange.abandon(cause)
  }
}

/** One POST and its reply: a JSON body, or a stream of events that is resumed when it breaks off. */
export class HttpExchange implements ReplySink {
  readonly #wire: HttpWire
  readonly #request: Request
  readonly #options: ExchangeOptions
  readonly #settle: (reading: Reading) => void
  readonly #broke: (cause: unknown) => void
  /** How it ended, to be found out when its caller is told, and let go of then; undefined while it goes on. */
  #end: (() => Reading) | undefined
  #reply: HttpReply
  #streaming = false
  /** Whether an event came that is no message. */
  #hasSkipped = false
  #lastEventId: string | undefined
  #retryMs: Millis = RESUME_MS
  /** The pause before the next resumption, as long as nothing comes. */
  #pauseMs: Millis | undefined
  #cancelTimer: Cancel | undefined

  static run(wire: HttpWire, request: Request, options: ExchangeOptions): Promise<Reading> {
    return new Promise((resolve, reject) =>
      new HttpExchange(wire, request, options, { resolve, reject }).#start(),
    )
  }

  private constructor(
    wire: HttpWire,
    request: Request,
    options: ExchangeOptions,
    { resolve, reject }: Settling,
  ) {
    this.#wire = wire
    this.#request = request
    this.#options = options
    this.#settle = resolve
    this.#broke = reject
    this.#reply = new HttpReply(this, options)
  }

  #start(): void {
    const { signal, text, headers, wire } = this.#request
    if (signal.aborted) return this.#failed(signal.reason as GatewayError)
    signal.addEventListener('abort', this.#cancel)
    this.#options.underWay.add(this)
    this.#wire.post(text, headers, this.#reply, wire?.shapes)
  }

  get channel(): Channel {
    return this.#request.channel
  }

  get progressToken(): unknown {
    const { message } = this.#request
    return message && progressTokenOf(message.value)
  }

  /** Ends the exchange here; the server may go on with it. */
  abandon(cause: GatewayError): GatewayError {
    const error = { ...cause, sent: this.#reply.sent || this.#streaming }
    this.#fail(error)
    return error
  }

  readonly #cancel = (): void => {
    const error = this.abandon(this.#request.signal.reason as GatewayError)
    if (error.sent) this.#tellCancelled(error)
  }

  /** Nobody waits for the answer any more: the server may stop to work on it. */
  #tellCancelled(error: GatewayError): void {
    const { clock, ackMs: limitMs, stateless, unread } = this.#options
    if (stateless === true) return
    const { id, headers } = this.#request
    const text = notificationText('notifications/cancelled', { requestId: id, reason: error.message })
    // Apart from notifications of the same session, which the server may be slow to take.
    const sender = this.#options.underWay
    // The server may have ended as well: nothing is left to be told to it.
    unread.send(text, () => postAway(this.#wire, text, { clock, limitMs, headers, sender })).catch(ignore)
  }

  started(): void {
    const { record, onSent } = this.#request
    if (record !== undefined) record.sent = true
    onSent?.()
  }

  opened(headers: ReplyHeaders): void {
    this.#streaming = true
    this.#options.onHeaders?.(headers)
    if (this.#end === undefined) this.#request.channel.open()
  }

  backpressure(): Promise<void> | undefined {
    return this.#options.unread.backpressure(this.#options.unfinished)
  }

  event(event: SseEvent): Promise<void> | undefined {
    this.#lastEventId = event.id
    if (event.retryMs !== undefined)
      this.#retryMs = Math.max(LEAST_RESUME_MS, Math.min(event.retryMs, MOST_RESUME_MS))
    // By the standard for streams of events, those of another type are for somebody else.
    if (this.#end !== undefined || event.data === '' || event.type !== 'message') return undefined
    this.#pauseMs = undefined
    const value = parseJson(event.data)
    const kind = isObject(value) ? kindOf(value) : undefined
    if (!isObject(value) || kind === undefined) return void this.#unreadable(event.data, value)
    const message = { text: event.data, value }
    switch (kind) {
      case 'response':
        // A server that cannot tell which request it refuses may leave the stream open behind its error.
        if (isIdOf(message.value.id, this.#request.id) || isOrphanError(message))
          this.#answered(readStreamed(this.#request.id, message, this.#wire.sessionId !== undefined))
        return undefined
      case 'request': {
        if (this.#options.stateless === true) return undefined
        const answer = answerTo(message, (text) => this.#post(text).catch(this.#untold))
        return answer === undefined ? undefined : this.#request.channel.send(message, answer)
      }
      default:
        return this.#request.channel.send(message)
    }
  }

  /** An event that is no message ends the call only if it may be the answer. `value`: what it says as JSON. */
  #unreadable(text: string, value: unknown): void {
    const parts: readonly unknown[] = Array.isArray(value) ? value : [value]
    if (value === undefined || parts.some((part) => mayAnswer(part, this.#request.id))) {
      const why = sizeFault(text) ?? NO_MESSAGE
      return this.#fail(gatewayError('bad_reply', why, { sent: true }))
    }
    this.#hasSkipped = true
    this.#options.skipped?.add(text, this.#conceal)
  }

  /** An answer that was never sent: its server would wait for it as long as the call has time. */
  readonly #untold = (error: GatewayError): never => {
    if (!error.sent && this.#end === undefined) this.#tellCancelled(this.abandon(error))
    throw error
  }

  /** In the session that the request was sent in. */
  #post(text: string): Promise<void> {
    const { clock, ackMs: limitMs, unread } = this.#options
    return unread.send(text, () => postAway(this.#wire, text, { clock, limitMs }))
  }

  body(status: number, headers: ReplyHeaders, text: string): void {
    if (this.#end !== undefined) return
    if (this.#streaming) return this.#broken()
    this.#options.onHeaders?.(headers)
    const context = {
      hasSession: this.#wire.sessionId !== undefined,
      wallMs: this.#options.clock.wall(),
      isWithoutPath: this.#wire.path === '/',
      conceal: this.#conceal,
    }
    const read = () => readReply(this.#request.id, status, headers, text, context)
    if (status !== 400) return this.#finish(read)
    const reading = read()
    this.#finish(() => reading)
    // Last, because it ends the upstream session with all that is still open.
    if (isVersionError(reading)) this.#options.onVersionError?.()
  }

  message(headers: ReplyHeaders, message: LargeMessage): void {
    if (this.#end !== undefined) return
    if (this.#streaming) return this.#broken()
    this.#options.onHeaders?.(headers)
    this.#finish(() => readLargeReply(this.#request.id, headers, message, this.#conceal))
  }

  /** Made when something of the server is to be told, which is seldom. */
  get #conceal(): Conceal {
    return (words) => this.#wire.concealing(this.#request.headers)(words)
  }

  ended(): void {
    this.#cancelTimer?.()
    if (this.#end !== undefined) return
    if (!this.#resumes) return this.#broken()
    const { clock } = this.#options
    const pauseMs = this.#resume()
    const waits = this.#cancelTimer
    const mayAskAt = clock.now() + LEAST_RESUME_MS
    this.#request.channel.pause(pauseMs, () => {
      // The pause may be over by now, and so may the call.
      if (this.#cancelTimer !== waits || this.#end !== undefined) return
      waits?.()
      this.#cancelTimer = clock.after(Math.max(0, mayAskAt - clock.now()), () => this.#askForRest())
    })
  }

  /** Whether a stream that breaks can be asked for again. */
  get #resumes(): boolean {
    return this.#lastEventId !== undefined && this.#options.stateless !== true
  }

  /** Asks for the rest after a pause; returns how long that is, in milliseconds. */
  #resume(): Millis {
    const pauseMs = this.#pauseMs ?? this.#retryMs
    this.#pauseMs = Math.min(pauseMs * 2, MOST_RESUME_MS)
    this.#cancelTimer = this.#options.clock.after(pauseMs, () => this.#askForRest())
    return pauseMs
  }

  #askForRest(): void {
    this.#cancelTimer = undefined
    this.#reply = new HttpReply(this, this.#options)
    this.#wire.listen(this.#lastEventId, this.#reply)
  }

  failed(error: GatewayError): void {
    this.#cancelTimer?.()
    if (this.#end !== undefined) return
    if (this.#streaming && this.#resumes && error.reason === 'upstream_disconnected')
      return void this.#resume()
    this.#failed({ ...error, sent: error.sent || this.#streaming })
    if (error.sent && gaveUp.has(error.reason)) this.#tellCancelled(error)
  }

  #answered(reading: Reading): void {
    this.#finish(() => reading)
    const reply = this.#reply
    const late = gatewayError('upstream_disconnected', 'the stream stayed open behind its answer', {
      sent: true,
    })
    this.#cancelTimer = this.#options.clock.after(LINGER_MS, () => reply.abort(late))
  }

  /** Ends the exchange. A server that has lost the session may end the stream like this, too. */
  #broken(): void {
    const error = this.#hasSkipped
      ? gatewayError('bad_reply', NO_MESSAGE, { sent: true })
      : gatewayError('upstream_disconnected', 'the stream ended without an answer', { sent: true })
    const otherwise = { kind: 'failed', error } as const
    const isSuspect = this.#wire.sessionId !== undefined
    this.#finish(() => (isSuspect ? { kind: 'suspected_loss', proof: 'none', otherwise } : otherwise))
    this.#reply.abort(error)
  }

  #fail(error: GatewayError): void {
    this.#failed(error)
    this.#reply.abort(error)
  }

  #failed(error: GatewayError): void {
    this.#finish(() => ({ kind: 'failed', error }))
  }

  #finish(end: () => Reading): void {
    if (this.#end !== undefined) return
    this.#end = end
    this.#cancelTimer?.()
    this.#request.signal.removeEventListener('abort', this.#cancel)
    this.#options.underWay.delete(this)
    over.add(this)
  }

  /** Tells the caller how it ended. */
  tell(): void {
    const end = this.#end
    // The rest of the stream, or of the connection, must not hold on to a reply that may be large.
    this.#end = told
    try {
      if (end !== undefined) this.#settle(end())
    } catch (cause) {
      this.#broke(cause)
    }
  }
}

const NO_MESSAGE = 'an event of the stream is no JSON-RPC message'

/** Whether a value that is no message may be meant as the answer to a request: by its id, or by an outcome that names no request. */
function mayAnswer(value: unknown, id: RequestId): boolean {
  if (!isObject(value) || 'method' in value) return false
  const hasOutcome = 'result' in value || 'error' in value
  return isIdOf(value.id, id) || (hasOutcome && !isRequestId(value.id))
}

/** Stands for an end that the caller knows. */
function told(): never {
  throw new Error('the caller was told already')
}

interface Settling {
  readonly resolve: (reading: Reading) => void
  /** For a defect of ours. */
  readonly reject: (cause: unknown) => void
}

/** Ends by which we, and not the server, ended the reply: it does not know that nobody waits any more. */
const gaveUp: ReadonlySet<string> = new Set<Reason>(['attempt_timeout', 'reply_too_large', 'overloaded'])
