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
import { ReplyHeaders } from './http-status.ts'
import { type Coding, codingOf, Inflation } from './inflation.ts'

/** Takes the reply to one HTTP request. Exactly one of `body`, `message`, `ended` and `failed` comes last. */
export interface ReplySink {
  /** The request is being handed to a socket: from here on it may run. */
  started?(): void
  /** An event stream begins; its events follow. */
  opened(headers: ReplyHeaders): void
  /** A promise pauses the socket until it settles; what has been read from it by then is still told. */
  event(event: SseEvent): Promise<void> | undefined
  /** An event was larger than `maxReply`, and is passed over; unless given, the stream ends with it. */
  overlong?(id: string | undefined, ends: Overlong): void
  /** Asked after each event: a promise, which never rejects, holds back all further ones until it resolves. */
  backpressure?(): Promise<void> | undefined
  /** A reply that is no event stream, complete. */
  body(status: number, headers: ReplyHeaders, text: string): void
  /** A reply with status 200 that is a large JSON object, in place of `body`; unless given, that gets it as any other. */
  message?(headers: ReplyHeaders, message: LargeMessage): void
  /** The event stream ended in order. */
  ended(): void
  failed(error: GatewayError): void
}

export interface ReplyLimits {
  /** Largest reply, or event of one, in bytes. */
  readonly maxReply: number
  /** Where counts what is kept of replies until they are complete; nowhere unless given. */
  readonly unfinished?: ServerReplies | undefined
}

/** A reply of which less is kept is not counted, in bytes: most are complete by then, and pay nothing. */
const UNCOUNTED = 16 * 1024

/** So much of a reply is read without a break, in bytes; many of them come at once, each with a socket buffer full. */
const BYTES_PER_TURN = 256 * 1024

/** The least that a chunk counts for, in bytes: a server may make each chunk one byte long. */
const LEAST_CHUNK = 1024

/** Largest part of an error's body that anybody looks at, in bytes: no large text. */
const ERROR_BODY_LIMIT = 63 * 1024

/** So much of a large reply is looked through in one turn, in bytes: it takes a millisecond or two. */
const SCAN_PER_TURN = 1024 * 1024

/** How much of a message besides its long strings is read in one turn, in bytes: with more of it, it is read as any other text. */
const MOST_REST = 1024 * 1024

/** Statuses that ask for the same request at another address. */
const repeating: ReadonlySet<number> = new Set([307, 308])

/** Most redirects of one request. */
const MOST_REDIRECTS = 5

const noHeaders = new ReplyHeaders([])

/** Most interim responses (1xx) to one request: nobody hears of them, and each costs CPU. */
const MOST_INTERIMS = 100

/**
 * undici's handler of one request: sorts the reply into a body or a stream of events, within limits.
 * Uses the older of undici's two kinds of handlers: the newer makes an object of all headers first, 2 to 5 % of a call.
 */
export class HttpReply implements Dispatcher.DispatchHandler, UnfinishedReply {
  readonly #sink: ReplySink
  readonly #limits: ReplyLimits
  #abort: ((cause: Error) => void) | undefined
  #aborted: GatewayError | undefined
  #status = 0
  /** How many responses came before the one that counts. */
  #interims = 0
  #headers = noHeaders
  #decoder: SseDecoder | undefined
  /** The part of a body that has come; undefined while nothing has. */
  #body: Chunks | undefined
  /** How much of it is counted as unfinished, in bytes. */
  #held = 0
  /** How much was read since the last break, in bytes. */
  #sinceBreak = 0
  /** How many events the sink has not taken yet. */
  #waiting = 0
  /** Whether the sink has been told all that it is told. */
  #isOver = false
  /** Whether what has come is not read on for now: others get their turn first, or who takes it is not ready for more. */
  #hasBreak = false
  #resume: () => void = () => undefined
  /** Returns a function that sends the request to an address; undefined for an address that is not followed. */
  #redirected: ((location: string) => (() => void) | undefined) | undefined
  /** Sends the request again, to where this reply, which nobody else hears of, has redirected it. */
  #follow: (() => void) | undefined
  #redirects = 0
  /** How much came of the bodies of redirects, in bytes. */
  #skipped = 0
  /** Reads what came compressed; undefined when nothing did. */
  #inflation: Inflation | undefined
  /** Has the socket go on. */
  #goOnReading: () => void = () => undefined
  /** How much came compressed, in bytes. */
  #compressed = 0
  /** Whether all that is compressed has come, and is not read yet. */
  #isFinishing = false
  /** An event that is large, and waits for a turn of its own. */
  #large: SseEvent | undefined
  /** The promise that has to settle before anything more is read. */
  #due: Promise<void> | undefined
  /** How the stream ended, while there is still something to read of it. */
  #end: (() => void) | undefined

  constructor(sink: ReplySink, limits: ReplyLimits) {
    this.#sink = sink
    this.#limits = limits
  }

  /** The peer whose turns the reading takes: all replies of a server share one peer. */
  get #peer(): object {
    return this.#limits.unfinished ?? this
  }

  /** Whether the request was handed to a socket, and thus may have run. */
  get sent(): boolean {
    return this.#abort !== undefined
  }

  /** Drops the request, or what is left of its reply. */
  abort(error: GatewayError): void {
    this.#aborted ??= error
    this.#drop()
    if (this.#end === undefined && !this.#isFinishing) return this.#abort?.(new Error(error.reason))
    // Its end is held back, and undici says nothing more of it.
    this.#end = undefined
    this.#isFinishing = false
    this.#sink.failed(this.#aborted)
  }

  /** Has redirects followed: `redirected` makes of the address of one what sends the request there, or undefined. */
  followBy(redirected: (location: string) => (() => void) | undefined): void {
    this.#redirected = redirected
  }

  onConnect(abort: (cause?: Error) => void): void {
    if (this.#aborted !== undefined) return abort(new Error(this.#aborted.reason))
    this.#abort = abort
    this.#sink.started?.()
  }

  onHeaders(status: number, raw: Buffer[], resume: () => void): boolean {
    if (status < 200) {
      if (++this.#interims > MOST_INTERIMS)
        this.abort(
          gatewayError('bad_reply', `more than ${MOST_INTERIMS} interim responses (1xx)`, { sent: true }),
        )
      return true
    }
    this.#status = status
    this.#headers = new ReplyHeaders(raw)
    this.#resume = resume
    if (repeating.has(status) && this.#redirects < MOST_REDIRECTS) {
      const location = this.#headers.get('location')
      this.#follow = location === undefined ? undefined : this.#redirected?.(location)
      if (this.#follow !== undefined) {
        this.#redirects++
        return true
      }
    }
    // It holds the request, of which nothing is needed any more: the reply may stay open for long.
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
    // Streams stay open for long, and there may be thousands of them.
    this.#headers = noHeaders
    return true
  }

  onData(chunk: Buffer): boolean {
    // With none, undici asks whether the end may be told, as that of a connection may although its reply is paused.
    if (this.#aborted !== undefined || chunk.length === 0) return true
    if (this.#follow !== undefined) {
      this.#skipped += chunk.length
      // It ends by an error, behind which the request is sent on as well.
      if (this.#skipped > ERROR_BODY_LIMIT) this.#abort?.(new Error('the rest of a redirect is not read'))
      return true
    }
    if (this.#inflation === undefined) return this.#take(chunk)
    this.#compressed += chunk.length
    // There may be much that holds nothing.
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

  /** False asks for a break. */
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

  /** Whether so much has come that what follows has to wait for a turn. */
  #rests(bytes: number): boolean {
    this.#sinceBreak += Math.max(bytes, LEAST_CHUNK)
    if (this.#sinceBreak < BYTES_PER_TURN) return false
    this.#sinceBreak = 0
    void ownTurn(this.#peer).then(() => {
      if (this.#waiting === 0 && !this.#hasBreak) this.#resume()
    })
    return true
  }

  /** Nobody looks at the rest of an error, which may have no end. */
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

  /** Whether a redirect is followed, now that it is over. */
  #goesOn(): boolean {
    const follow = this.#follow
    this.#follow = undefined
    if (follow === undefined || this.#aborted !== undefined) return false
    follow()
    return true
  }

  /** Reads the compressed bytes to their end first. */
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

  /** Reads a large body in turns of its own: with 16 MB each step takes long. */
  async #inTurns(): Promise<void> {
    await ownTurn(this.#peer)
    const chunks = this.#body?.takeChunks() ?? []
    const tell = (await this.#asMessage(chunks)) ?? (await this.#asText(chunks))
    this.#drop()
    if (this.#aborted !== undefined) this.#sink.failed(this.#aborted)
    else if (tell !== undefined) during('reply', tell)
  }

  /** Undefined when it has to be read as text, which tells what is wrong with it. */
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

  /** It is put together in this turn, becomes text in the next, and is read in a third; undefined when nobody wants it any more. */
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

  /** So much is kept of what is not complete. Too much of it ends this reply, or another one. */
  #hold(bytes: number): void {
    const { unfinished } = this.#limits
    const held = bytes < UNCOUNTED ? 0 : bytes
    const more = held - this.#held
    if (more === 0 || unfinished === undefined || this.#aborted !== undefined) return
    this.#held = held
    unfinished.hold(this, more, held)
  }

  /** Nothing is kept any more: whoever still holds this object does not hold what came. */
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
    // The data that came before the connection broke is read first, unless nobody wants the data any more.
    if (this.#hasBreak && this.#aborted === undefined) this.#end = () => this.#failed(error)
    else this.#failed(error)
  }

  /** False asks the socket to wait. */
  #feed(decoder: SseDecoder, chunk: Buffer): boolean {
    if (this.#hasBreak) {
      decoder.feed(chunk)
      this.#hold(this.#kept(decoder))
      return false
    }
    this.#read(decoder, chunk)
    return !this.#rests(chunk.length) && this.#waiting === 0 && !this.#hasBreak
  }

  /** Reads until there is nothing left to read, or others have to get their turn. */
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

  /** False asks for a break. */
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

/** Removes the byte order mark that some servers send. Readers of JSON may ignore the mark (RFC 8259, 8.1), and clients do. */
const withoutMark = (text: string): string => (text.startsWith('\ufeff') ? text.slice(1) : text)

function tooLarge(message: string): GatewayError {
  return gatewayError('reply_too_large', message, { sent: true })
}

/** Codes of errors that happen before a single byte was sent, and what they say of the server. */
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

const UNTRUSTED = ': nobody who is trusted has signed its certificate; tls.ca may name who has'

/** Hints at likely mistakes in a config, by error code. */
const hints: ReadonlyMap<string, string> = new Map([
  ['DEPTH_ZERO_SELF_SIGNED_CERT', UNTRUSTED],
  ['SELF_SIGNED_CERT_IN_CHAIN', UNTRUSTED],
  ['UNABLE_TO_VERIFY_LEAF_SIGNATURE', UNTRUSTED],
  ['UNABLE_TO_GET_ISSUER_CERT_LOCALLY', UNTRUSTED],
  ['ERR_SSL_WRONG_VERSION_NUMBER', ': it does not speak TLS; http:// may be right'],
  ['ENOTFOUND', ': there is no host of this name'],
])

/** Returns the error for an error of a socket; `sent`: whether the request may have run. Nothing else reads codes of sockets. */
export function transportError(failure: Error & { code?: string }, sent: boolean): GatewayError {
  const code = failure.code ?? failure.name
  const cause = neverConnected.get(code) ?? (code.startsWith('ERR_SSL_') ? 'tls' : undefined)
  // A connection that was there can still find its host out of reach.
  if (!sent && cause !== undefined)
    return gatewayError('upstream_unavailable', `cannot connect (${code})${hints.get(code) ?? ''}`, { cause })
  if (code === 'UND_ERR_HEADERS_TIMEOUT' || code === 'UND_ERR_BODY_TIMEOUT') {
    return gatewayError('attempt_timeout', 'the server fell silent', { sent })
  }
  return gatewayError('upstream_disconnected', `the connection broke (${code})`, { sent, cause })
}
