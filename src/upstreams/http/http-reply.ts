import type { Dispatcher } from 'undici'
import { type FailureCause, gatewayError, type GatewayError } from '../../mesh/errors.ts'
import { ownTurn, TurnBudget } from '../../mesh/turns.ts'
import { during, LARGE_TEXT } from '../../mesh/work.ts'
import { Chunks, textOf } from '../../protocol/chunks.ts'
import { LargeMessage } from '../../protocol/large-message.ts'
import { LongStrings } from '../../protocol/long-strings.ts'
import type { Overlong } from '../../protocol/overlong.ts'
import { SseDecoder, SseOverflow, type SseEvent } from '../../protocol/sse.ts'
import type { ServerReplies, UnfinishedReply } from '../unfinished-replies.ts'
import type { CallHandler } from './calls.ts'
import { ReplyHeaders } from './http-status.ts'
import { type Coding, codingOf, Inflation } from './inflation.ts'

/** Takes the reply to one HTTP request. Exactly one of `body`, `message`, `ended` and `failed` comes last. */
export interface ReplySink {
  /** The request goes to a socket: from now on the server may run the request. */
  started?(): void
  /** An event stream begins; its events follow. */
  opened(headers: ReplyHeaders): void
  /** Takes an event. A returned promise pauses the socket until it settles; bytes read before still arrive. */
  event(event: SseEvent): Promise<void> | undefined
  /** An event was larger than `maxReply` and is skipped; without this method the stream ends. */
  overlong?(id: string | undefined, ends: Overlong): void
  /** Called after each event. A returned promise holds back further events until it resolves; it never rejects. */
  backpressure?(): Promise<void> | undefined
  /** A complete reply without an event stream. */
  body(status: number, headers: ReplyHeaders, text: string): void
  /** Gets a large JSON object with status 200 instead of `body`; without this method, `body` gets the object. */
  message?(headers: ReplyHeaders, message: LargeMessage): void
  /** The event stream ended normally. */
  ended(): void
  failed(error: GatewayError): void
}

export interface ReplyLimits {
  /** Largest reply, or largest event, in bytes. */
  readonly maxReply: number
  /** Counts the buffered bytes of incomplete replies; optional. */
  readonly unfinished?: ServerReplies | undefined
}

/** Smallest buffer that is counted, in bytes: most replies are complete before, and need no counting. */
const UNCOUNTED = 16 * 1024

/** Bytes read per turn: many replies may arrive at once, each with a full socket buffer. */
const BYTES_PER_TURN = 256 * 1024

/** Minimum cost of a chunk, in bytes: a server may send chunks of a single byte. */
const LEAST_CHUNK = 1024

/** Largest part of an error's body to read, in bytes: less than a large text. */
const ERROR_BODY_LIMIT = 63 * 1024

/** Bytes of a large reply scanned per turn: takes a millisecond or two. */
const SCAN_PER_TURN = 1024 * 1024

/** Most bytes of a message outside of its long strings; a message with more is read as plain text. */
const MOST_REST = 1024 * 1024

/** Statuses that redirect a request with its method and body. */
const repeating: ReadonlySet<number> = new Set([307, 308])

const MOST_REDIRECTS = 5

const noHeaders = new ReplyHeaders([])

/** Most interim responses (1xx) to a request: nobody sees interim responses, and each costs CPU. */
const MOST_INTERIMS = 100

/**
 * Handles a request for undici: sorts the reply into a body or an event stream, within limits. Uses the older of
 * undici's two kinds of handlers. The newer kind first builds an object of all headers, which takes 2 to 5 % of the
 * time of a call.
 */
export class HttpReply implements CallHandler, Dispatcher.DispatchHandler, UnfinishedReply {
  readonly #sink: ReplySink
  readonly #limits: ReplyLimits
  #abort: ((cause: Error) => void) | undefined
  #aborted: GatewayError | undefined
  #status = 0
  #interims = 0
  #headers = noHeaders
  #decoder: SseDecoder | undefined
  /** Body bytes so far; undefined before the first. */
  #body: Chunks | undefined
  /** Body bytes counted as unfinished. */
  #held = 0
  /** Bytes read since the last pause for other replies. */
  #sinceBreak = 0
  /** Number of events not yet taken by the sink. */
  #waiting = 0
  /** Whether the sink has had its last call. */
  #isOver = false
  /** Whether reading pauses: other replies have their turn, or the sink is not ready. */
  #hasBreak = false
  #resume: () => void = () => undefined
  /** Returns a function for sending the request to an address; undefined when the address is not followed. */
  #redirected: ((location: string) => (() => void) | undefined) | undefined
  /** Sends the request again, to the target of a redirect. The sink does not see the redirect. */
  #follow: (() => void) | undefined
  #redirects = 0
  /** Bytes received in bodies of redirects. */
  #skipped = 0
  /** Decompresses the reply; undefined for an uncompressed reply. */
  #inflation: Inflation | undefined
  #goOnReading: () => void = () => undefined
  #compressed = 0
  /** Whether all compressed bytes have come, but some are unread. */
  #isFinishing = false
  /** A large event, waiting for its own turn. */
  #large: SseEvent | undefined
  /** A promise that must settle before reading continues. */
  #due: Promise<void> | undefined
  /** Ends the stream once the rest is read. */
  #end: (() => void) | undefined

  constructor(sink: ReplySink, limits: ReplyLimits) {
    this.#sink = sink
    this.#limits = limits
  }

  /** The peer for `ownTurn`: all replies of a server share one peer. */
  get #peer(): object {
    return this.#limits.unfinished ?? this
  }

  /** Whether the request reached a socket and may have run. */
  get sent(): boolean {
    return this.#abort !== undefined
  }

  /** Drops the request, or the rest of its reply. */
  abort(error: GatewayError): void {
    this.#aborted ??= error
    this.#drop()
    if (this.#end === undefined && !this.#isFinishing) return this.#abort?.(new Error(error.reason))
    // undici has already reported the end, which is held back here.
    this.#end = undefined
    this.#isFinishing = false
    this.#sink.failed(this.#aborted)
  }

  /** Follows redirects: `redirected` returns a function for sending the request to an address, or undefined. */
  followBy(redirected: (location: string) => (() => void) | undefined): void {
    this.#redirected = redirected
  }

  onConnect(abort: (cause?: Error) => void): void {
    if (this.#aborted !== undefined) return abort(new Error(this.#aborted.reason))
    this.#abort = abort
    this.#sink.started?.()
  }

  onHeaders(status: number, raw: Buffer[], resume: () => void): boolean {
    return this.onReply(status, new ReplyHeaders(raw), resume)
  }

  onReply(status: number, headers: ReplyHeaders, resume: () => void): boolean {
    if (status < 200) {
      if (++this.#interims > MOST_INTERIMS)
        this.abort(
          gatewayError('bad_reply', `more than ${MOST_INTERIMS} interim responses (1xx)`, { sent: true }),
        )
      return true
    }
    this.#status = status
    this.#headers = headers
    this.#resume = resume
    if (repeating.has(status) && this.#redirects < MOST_REDIRECTS) {
      const location = this.#headers.get('location')
      this.#follow = location === undefined ? undefined : this.#redirected?.(location)
      if (this.#follow !== undefined) {
        this.#redirects++
        return true
      }
    }
    // Frees the request: the reply may stay open for long.
    this.#redirected = undefined
    const encoding = this.#headers.get('content-encoding')
    const coding = encoding === undefined ? undefined : codingOf(encoding)
    if (coding !== undefined) this.#inflate(coding)
    if (status !== 200 || !this.#headers.mediaType.startsWith('text/event-stream')) return true
    const turns = new TurnBudget()
    const { overlong } = this.#sink
    this.#decoder = new SseDecoder(
      this.#limits.maxReply,
      (event) => this.#event(event, turns),
      overlong && ((id, ends) => overlong.call(this.#sink, id, ends)),
    )
    this.#sink.opened(this.#headers)
    // Frees the headers: thousands of streams may stay open for long.
    this.#headers = noHeaders
    return true
  }

  onData(chunk: Buffer): boolean {
    // With an empty chunk, undici asks whether it may report the end. This happens when a connection ends while its
    // reply is paused.
    if (this.#aborted !== undefined || chunk.length === 0) return true
    if (this.#follow !== undefined) {
      this.#skipped += chunk.length
      // The abort ends the reply with an error, and the error handler also follows the redirect.
      if (this.#skipped > ERROR_BODY_LIMIT) this.#abort?.(new Error('the rest of a redirect is not read'))
      return true
    }
    if (this.#inflation === undefined) return this.#take(chunk)
    this.#compressed += chunk.length
    // Compressed bytes may decompress to nothing, so they are limited too.
    const { maxReply } = this.#limits
    if (this.#decoder === undefined && this.#compressed > maxReply) {
      this.abort(tooLarge(`a reply is larger than ${maxReply} bytes`))
      return true
    }
    return this.#inflation.write(chunk, this.#goOnReading)
  }

  #inflate(coding: Coding): void {
    const inflation = new Inflation(coding, {
      take: (chunk) => this.#aborted !== undefined || this.#take(chunk),
      failed: () =>
        this.abort(gatewayError('bad_reply', `the reply cannot be decompressed (${coding})`, { sent: true })),
    })
    this.#goOnReading = this.#resume
    this.#resume = () => inflation.resume()
    this.#inflation = inflation
  }

  /** Takes bytes of the body; returns false to pause. */
  #take(chunk: Buffer): boolean {
    if (this.#decoder !== undefined) return this.#feed(this.#decoder, chunk)
    const body = (this.#body ??= new Chunks())
    const bytes = body.length + chunk.length
    const { maxReply } = this.#limits
    const enough = Math.min(ERROR_BODY_LIMIT, maxReply)
    if (this.#status >= 400 && bytes > enough) {
      body.add(chunk.subarray(0, enough - body.length))
      return this.#enough()
    }
    if (bytes > maxReply) this.abort(tooLarge(`a reply is larger than ${maxReply} bytes`))
    else {
      const isAll =
        this.#inflation === undefined &&
        bytes === chunk.length &&
        this.#headers.get('content-length') === String(bytes)
      body.add(chunk, isAll)
      if (!isAll) this.#hold(bytes)
    }
    return !this.#rests(chunk.length)
  }

  /** Counts bytes. Returns true when this turn is used up; reading then continues in the next turn. */
  #rests(bytes: number): boolean {
    this.#sinceBreak += Math.max(bytes, LEAST_CHUNK)
    if (this.#sinceBreak < BYTES_PER_TURN) return false
    this.#sinceBreak = 0
    void ownTurn(this.#peer).then(() => {
      if (this.#waiting === 0 && !this.#hasBreak) this.#resume()
    })
    return true
  }

  /** Ends the reply: nobody reads the rest of an error, and the rest may be endless. */
  #enough(): boolean {
    this.#isFinishing = false
    this.#complete()
    this.#isOver = true
    this.abort(gatewayError('cancelled', 'the rest of an error is not read'))
    return true
  }

  onComplete(): void {
    if (this.#isOver || this.#goesOn()) return
    if (this.#inflation === undefined) return this.#complete()
    this.#finishInflation(this.#inflation, () => this.#complete())
  }

  /** Follows a redirect after its reply; returns whether a redirect was followed. */
  #goesOn(): boolean {
    const follow = this.#follow
    this.#follow = undefined
    if (follow === undefined || this.#aborted !== undefined) return false
    follow()
    return true
  }

  /** Decompresses the rest of the body, then calls `over`. */
  #finishInflation(inflation: Inflation, over: () => void): void {
    this.#isFinishing = true
    inflation.finish(() => {
      this.#isFinishing = false
      this.#inflation = undefined
      over()
    })
  }

  #complete(): void {
    if (this.#hasBreak) this.#end = () => this.#ended()
    else if (this.#decoder !== undefined) this.#ended()
    else if ((this.#body?.length ?? 0) < LARGE_TEXT) this.#whole()
    else {
      this.#limits.unfinished?.complete(this)
      void this.#inTurns()
    }
  }

  #whole(): void {
    const text = withoutMark(this.#body?.take() ?? '')
    this.#drop()
    this.#sink.body(this.#status, this.#headers, text)
  }

  /** Reads a large body in several turns: with 16 MB each step takes long. */
  async #inTurns(): Promise<void> {
    await ownTurn(this.#peer)
    const chunks = this.#body?.takeChunks() ?? []
    const tell = (await this.#asMessage(chunks)) ?? (await this.#asText(chunks))
    this.#drop()
    if (this.#aborted !== undefined) this.#sink.failed(this.#aborted)
    else if (tell !== undefined) during('reply', tell)
  }

  /**
   * Returns a function that passes on a large message. Undefined when the body must be read as text, for a proper error
   * message.
   */
  async #asMessage(chunks: readonly Buffer[]): Promise<(() => void) | undefined> {
    if (this.#sink.message === undefined || this.#status !== 200) return undefined
    const strings = new LongStrings()
    let inTurn = 0
    for (const chunk of chunks) {
      inTurn += chunk.length
      if (inTurn > SCAN_PER_TURN) {
        await ownTurn(this.#peer)
        inTurn = chunk.length
      }
      if (this.#aborted !== undefined || !during('reply', () => strings.read(chunk))) return undefined
      if (strings.rest > MOST_REST) return undefined
    }
    const message = during('reply', () => LargeMessage.read(chunks, strings))
    return message && (() => this.#sink.message?.(this.#headers, message))
  }

  /**
   * Concatenates the chunks in this turn, decodes them in the next, and parses the text in a third. Undefined after an
   * abort.
   */
  async #asText(chunks: Buffer[]): Promise<(() => void) | undefined> {
    if (this.#aborted !== undefined) return undefined
    const bytes = during('reply', () => Buffer.concat(chunks.splice(0)))
    await ownTurn(this.#peer)
    if (this.#aborted !== undefined) return undefined
    const text = during('reply', () => withoutMark(textOf(bytes)))
    await ownTurn(this.#peer)
    return () => this.#sink.body(this.#status, this.#headers, text)
  }

  #ended(): void {
    this.#drop()
    this.#sink.ended()
  }

  #failed(error: GatewayError): void {
    this.#drop()
    this.#sink.failed(error)
  }

  /** Counts buffered bytes. Too many buffered bytes end this reply or another reply. */
  #hold(bytes: number): void {
    const { unfinished } = this.#limits
    const held = bytes < UNCOUNTED ? 0 : bytes
    const more = held - this.#held
    if (more === 0 || unfinished === undefined || this.#aborted !== undefined) return
    this.#held = held
    unfinished.hold(this, more, held)
  }

  /** Frees all buffers: other objects may still refer to this reply. */
  #drop(): void {
    const held = this.#held
    this.#held = 0
    if (held > 0) this.#limits.unfinished?.hold(this, -held, 0)
    this.#body = undefined
    this.#decoder = undefined
    this.#large = undefined
    this.#inflation?.stop()
    this.#inflation = undefined
  }

  onError(cause: Error): void {
    if (this.#isOver || this.#goesOn()) return
    const error = this.#aborted ?? transportError(cause, this.sent)
    if (this.#inflation === undefined || this.#aborted !== undefined) return this.#broke(error)
    this.#finishInflation(this.#inflation, () => this.#broke(error))
  }

  #broke(error: GatewayError): void {
    // Reads the data that came before the break first, unless the reply is aborted.
    if (this.#hasBreak && this.#aborted === undefined) this.#end = () => this.#failed(error)
    else this.#failed(error)
  }

  /** Feeds a chunk to the decoder; returns false to pause the socket. */
  #feed(decoder: SseDecoder, chunk: Buffer): boolean {
    if (this.#hasBreak) {
      decoder.feed(chunk)
      this.#hold(this.#kept(decoder))
      return false
    }
    this.#read(decoder, chunk)
    return !this.#rests(chunk.length) && this.#waiting === 0 && !this.#hasBreak
  }

  /** Reads until nothing is left, or until another reply must have its turn. */
  #read(decoder: SseDecoder, chunk?: Buffer): void {
    try {
      if (chunk === undefined) decoder.resume()
      else decoder.feed(chunk)
    } catch (error) {
      if (!(error instanceof SseOverflow)) throw error
      this.#due = this.#large = undefined
      this.abort(tooLarge(error.message))
    }
    this.#hold(this.#kept(decoder))
    const due = this.#large === undefined ? this.#due : ownTurn(this.#peer)
    if (due !== undefined) this.#goOnAfter(due, decoder)
  }

  #kept(decoder: SseDecoder): number {
    return decoder.held + (this.#large?.data.length ?? 0)
  }

  #goOnAfter(due: Promise<void>, decoder: SseDecoder): void {
    this.#hasBreak = true
    void due.then(() => this.#goOn(decoder))
  }

  #goOn(decoder: SseDecoder): void {
    this.#hasBreak = false
    this.#due = undefined
    if (this.#aborted !== undefined) return
    const large = this.#large
    this.#large = undefined
    if (large !== undefined) during('reply', () => this.#pass(large))
    const due = this.#sink.backpressure?.()
    if (due !== undefined) return this.#goOnAfter(due, decoder)
    this.#read(decoder)
    if (this.#hasBreak || this.#aborted !== undefined) return
    const end = this.#end
    this.#end = undefined
    if (end !== undefined) end()
    else if (this.#waiting === 0) this.#resume()
  }

  /** Takes an event; returns false to pause. */
  #event(event: SseEvent, turns: TurnBudget): boolean {
    if (event.data.length >= LARGE_TEXT) {
      this.#large = event
      return false
    }
    turns.begin()
    this.#pass(event)
    this.#due = turns.spent(event.data.length) ? ownTurn(this.#peer) : this.#sink.backpressure?.()
    return this.#due === undefined
  }

  #pass(event: SseEvent): void {
    const taken = this.#sink.event(event)
    if (taken === undefined) return
    this.#waiting++
    void taken.finally(() => {
      if (--this.#waiting === 0 && !this.#hasBreak) this.#resume()
    })
  }
}

/**
 * Removes the byte order mark of some servers. JSON readers may ignore the mark (RFC 8259, 8.1), and MCP clients do.
 */
const withoutMark = (text: string): string => (text.startsWith('\ufeff') ? text.slice(1) : text)

function tooLarge(message: string): GatewayError {
  return gatewayError('reply_too_large', message, { sent: true })
}

/** Codes of errors before the first byte was sent, with the cause for each. */
const neverConnected: ReadonlyMap<string, FailureCause> = new Map([
  ['ECONNREFUSED', 'connection_refused'],
  ['ENOTFOUND', 'dns'],
  ['EAI_AGAIN', 'dns'],
  ['EHOSTUNREACH', 'connection_refused'],
  ['ENETUNREACH', 'connection_refused'],
  ['UND_ERR_CONNECT_TIMEOUT', 'timeout'],
  ['UND_ERR_CLOSED', 'connection_refused'],
  ['UND_ERR_DESTROYED', 'connection_refused'],
  ['DEPTH_ZERO_SELF_SIGNED_CERT', 'tls'],
  ['SELF_SIGNED_CERT_IN_CHAIN', 'tls'],
  ['UNABLE_TO_VERIFY_LEAF_SIGNATURE', 'tls'],
  ['UNABLE_TO_GET_ISSUER_CERT_LOCALLY', 'tls'],
  ['CERT_NOT_YET_VALID', 'tls'],
  ['CERT_HAS_EXPIRED', 'tls'],
  ['ERR_TLS_CERT_ALTNAME_INVALID', 'tls'],
])

const UNTRUSTED = ': no trusted authority has signed its certificate; tls.ca can name another authority'

const hints: ReadonlyMap<string, string> = new Map([
  ['DEPTH_ZERO_SELF_SIGNED_CERT', UNTRUSTED],
  ['SELF_SIGNED_CERT_IN_CHAIN', UNTRUSTED],
  ['UNABLE_TO_VERIFY_LEAF_SIGNATURE', UNTRUSTED],
  ['UNABLE_TO_GET_ISSUER_CERT_LOCALLY', UNTRUSTED],
  ['ERR_SSL_WRONG_VERSION_NUMBER', ': the server does not speak TLS; try http://'],
  ['ENOTFOUND', ': there is no host of this name'],
])

/** Returns the error for a socket error; `sent`: whether the request may have run. */
export function transportError(failure: Error & { code?: string }, sent: boolean): GatewayError {
  const code = failure.code ?? failure.name
  const cause = neverConnected.get(code) ?? (code.startsWith('ERR_SSL_') ? 'tls' : undefined)
  // A sent request can also fail with such a code: an established connection may report an unreachable host.
  if (!sent && cause !== undefined)
    return gatewayError('upstream_unavailable', `cannot connect (${code})${hints.get(code) ?? ''}`, { cause })
  if (code === 'UND_ERR_HEADERS_TIMEOUT' || code === 'UND_ERR_BODY_TIMEOUT') {
    return gatewayError('attempt_timeout', 'the server fell silent', { sent })
  }
  return gatewayError('upstream_disconnected', `the connection broke (${code})`, { sent, cause })
}
