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

/** The parts of a request needed by the wire. A `Call` has all these parts. */
export interface Request {
  readonly id: RequestId
  readonly text: string
  /** The parsed text; absent for the gateway's own requests, which ask for no progress. */
  readonly message?: Message
  readonly headers: Readonly<Record<string, string>> | undefined
  readonly signal: Signal
  readonly channel: Channel
  readonly wire?: CallWire | undefined
  /** Its `sent` becomes true once the request was handed to a socket and may run. */
  readonly record?: { sent: boolean }
  /** Called each time the request was handed to a socket. */
  readonly onSent?: (() => void) | undefined
}

export interface ExchangeOptions extends ReplyLimits {
  readonly clock: Clock
  /** How long the server may take to acknowledge a message without a reply, in milliseconds. */
  readonly ackMs: Millis
  readonly underWay: UnderWay
  /** Posted, unacknowledged messages of the upstream session. */
  readonly unread: Unread
  /** Called once, with the headers of the reply. */
  readonly onHeaders?: (headers: ReplyHeaders) => void
  /**
   * Whether the server keeps no state between requests, as in the modern era. Then a broken stream cannot be resumed,
   * closing the socket is enough to cancel a request, and requests of the server are ignored.
   */
  readonly stateless?: boolean
  /** Logs events that are no JSON-RPC message, except an event that may be the answer. */
  readonly skipped?: Skipped | undefined
  /** Called when the server refused the request for its protocol version. */
  readonly onVersionError?: (() => void) | undefined
}

/** Default pause before resuming a broken stream, in milliseconds. */
const RESUME_MS = 1_000

/**
 * Limits of the pause before resuming, in milliseconds, also of a pause that the server names. The pause doubles while
 * nothing arrives.
 */
const LEAST_RESUME_MS = 100
const MOST_RESUME_MS = 30_000

/** How long a server may keep a stream open behind its answer, in milliseconds. */
const LINGER_MS = 1_000

/** Replies of the same turn of the event loop are read together, and their callers continue together. */
const over = new TurnBatch<HttpExchange>((exchange) => exchange.tell())

/** The exchanges under way of an upstream session: usually one, and none in thousands of idle sessions. */
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

  /**
   * Returns the channel of the only call; undefined for none or several. Ignores exchanges on the channel `own`, which
   * are no calls.
   */
  onlyChannel(own: Channel): Channel | undefined {
    let only: Channel | undefined
    for (const exchange of [this.#only, ...(this.#others ?? [])]) {
      if (exchange === undefined || exchange.channel === own) continue
      if (only !== undefined) return undefined
      only = exchange.channel
    }
    return only
  }

  /** Returns the channel of the call for a progress message; undefined when no call or several calls match. */
  progressing(message: Pick<Message, 'value'>): Channel | undefined {
    let found: Channel | undefined
    for (const exchange of [this.#only, ...(this.#others ?? [])]) {
      if (exchange === undefined || !isProgress(message, exchange.progressToken)) continue
      if (found !== undefined) return undefined
      found = exchange.channel
    }
    return found
  }

  /** Ends all exchanges on the gateway's side. */
  abandon(cause: GatewayError): void {
    this.#only?.abandon(cause)
    for (const exchange of this.#others ?? []) exchange.abandon(cause)
  }
}

/** One POST and its reply: a JSON body, or an event stream, resumed after a break. */
export class HttpExchange implements ReplySink {
  readonly #wire: HttpWire
  readonly #request: Request
  readonly #options: ExchangeOptions
  readonly #settle: (reading: Reading) => void
  readonly #broke: (cause: unknown) => void
  /** Computes the outcome when the caller is told; undefined while the exchange is open. */
  #end: (() => Reading) | undefined
  #reply: HttpReply
  #streaming = false
  #hasSkipped = false
  #lastEventId: string | undefined
  #retryMs: Millis = RESUME_MS
  /** The pause before the next resumption while nothing arrives. */
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

  /** Ends the exchange on the gateway's side; the server may continue. */
  abandon(cause: GatewayError): GatewayError {
    const error = { ...cause, sent: this.#reply.sent || this.#streaming }
    this.#fail(error)
    return error
  }

  readonly #cancel = (): void => {
    const error = this.abandon(this.#request.signal.reason as GatewayError)
    if (error.sent) this.#tellCancelled(error)
  }

  /** Tells the server to stop work on an abandoned request. */
  #tellCancelled(error: GatewayError): void {
    const { clock, ackMs: limitMs, stateless, unread } = this.#options
    if (stateless === true) return
    const { id, headers } = this.#request
    const text = notificationText('notifications/cancelled', { requestId: id, reason: error.message })
    // With another sender, the cancellation does not wait for notifications of the session, which the server may accept
    // slowly.
    const sender = this.#options.underWay
    // A failure is ignored: the server may be gone.
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
    // By the standard for event streams, events of other types are for other readers.
    if (this.#end !== undefined || event.data === '' || event.type !== 'message') return undefined
    this.#pauseMs = undefined
    const value = parseJson(event.data)
    const kind = isObject(value) ? kindOf(value) : undefined
    if (!isObject(value) || kind === undefined) return void this.#unreadable(event.data, value)
    const message = { text: event.data, value }
    switch (kind) {
      case 'response':
        // An error without a request id counts as the answer, because a server may leave the stream open after it.
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

  /**
   * Handles an event that is no JSON-RPC message: ends the call if the event may be the answer, otherwise logs the
   * event. `value`: the event's JSON value.
   */
  #unreadable(text: string, value: unknown): void {
    const parts: readonly unknown[] = Array.isArray(value) ? value : [value]
    if (value === undefined || parts.some((part) => mayAnswer(part, this.#request.id))) {
      const why = sizeFault(text) ?? NO_MESSAGE
      return this.#fail(gatewayError('bad_reply', why, { sent: true }))
    }
    this.#hasSkipped = true
    this.#options.skipped?.add(text, this.#conceal)
  }

  /**
   * Cancels the call when an answer to the server's request could not be sent: the server would wait for the answer
   * until the call times out.
   */
  readonly #untold = (error: GatewayError): never => {
    if (!error.sent && this.#end === undefined) this.#tellCancelled(this.abandon(error))
    throw error
  }

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
    // Called last, because this ends the upstream session with all open exchanges.
    if (isVersionError(reading)) this.#options.onVersionError?.()
  }

  message(headers: ReplyHeaders, message: LargeMessage): void {
    if (this.#end !== undefined) return
    if (this.#streaming) return this.#broken()
    this.#options.onHeaders?.(headers)
    this.#finish(() => readLargeReply(this.#request.id, headers, message, this.#conceal))
  }

  /** Removes secrets from the server's texts; created on demand, because such texts are seldom shown. */
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
      // By now the pause may be over, and the call as well.
      if (this.#cancelTimer !== waits || this.#end !== undefined) return
      waits?.()
      this.#cancelTimer = clock.after(Math.max(0, mayAskAt - clock.now()), () => this.#askForRest())
    })
  }

  get #resumes(): boolean {
    return this.#lastEventId !== undefined && this.#options.stateless !== true
  }

  /** Requests the rest of the stream after a pause; returns the pause in milliseconds. */
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
    const late = gatewayError('upstream_disconnected', 'the stream stayed open after its answer', {
      sent: true,
    })
    this.#cancelTimer = this.#options.clock.after(LINGER_MS, () => reply.abort(late))
  }

  /**
   * Ends the exchange after a stream without an answer. A server that has forgotten the session may also end a stream
   * like this.
   */
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

  tell(): void {
    const end = this.#end
    // An open stream or connection may still refer to this exchange, and must not keep a large reply in memory.
    this.#end = told
    try {
      if (end !== undefined) this.#settle(end())
    } catch (cause) {
      this.#broke(cause)
    }
  }
}

const NO_MESSAGE = 'an event of the stream is not a JSON-RPC message'

/**
 * Whether a value that is no JSON-RPC message may be meant as the answer: it has the request's id, or an outcome
 * without an id.
 */
function mayAnswer(value: unknown, id: RequestId): boolean {
  if (!isObject(value) || 'method' in value) return false
  const hasOutcome = 'result' in value || 'error' in value
  return isIdOf(value.id, id) || (hasOutcome && !isRequestId(value.id))
}

/** Replaces the outcome once the caller has it; throws when called. */
function told(): never {
  throw new Error('the caller already has the outcome')
}

interface Settling {
  readonly resolve: (reading: Reading) => void
  /** Called only because of a bug in Breakwater. */
  readonly reject: (cause: unknown) => void
}

/** Error reasons with which Breakwater itself ended the reply, so the server must still be told. */
const gaveUp: ReadonlySet<string> = new Set<Reason>(['attempt_timeout', 'reply_too_large', 'overloaded'])
