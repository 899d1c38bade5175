import type { Dispatcher } from 'undici'
import { gatewayError, type GatewayError } from '../mesh/errors.ts'
import { SseDecoder, SseOverflow, type SseEvent } from '../protocol/sse.ts'

export type ReplyHeaders = Readonly<Record<string, string | string[] | undefined>>

/** Takes the reply to one HTTP request. Exactly one of `body`, `ended` and `failed` comes last. */
export interface ReplySink {
  /** An event stream begins; its events follow. */
  opened(headers: ReplyHeaders): void
  /** A promise pauses the socket until it settles. */
  event(event: SseEvent): Promise<void> | undefined
  /** A reply that is no event stream, complete. */
  body(status: number, headers: ReplyHeaders, text: string): void
  /** The event stream ended in order. */
  ended(): void
  failed(error: GatewayError): void
}

/** Largest part of an error's body that anybody looks at. */
const ERROR_BODY_LIMIT = 64 * 1024

/** undici's handler of one request: sorts the reply into a body or a stream of events, within `limit` bytes. */
export class HttpReply implements Dispatcher.DispatchHandler {
  readonly #sink: ReplySink
  readonly #limit: number
  #controller: Dispatcher.DispatchController | undefined
  #aborted: GatewayError | undefined
  #status = 0
  #headers: ReplyHeaders = {}
  #decoder: SseDecoder | undefined
  #chunks: Buffer[] = []
  #bytes = 0
  #truncated = false
  #waiting = 0

  constructor(sink: ReplySink, limit: number) {
    this.#sink = sink
    this.#limit = limit
  }

  /** Whether the request was handed to a socket, and thus may have run. */
  get sent(): boolean {
    return this.#controller !== undefined
  }

  /** Drops the request, or what is left of its reply. */
  abort(error: GatewayError): void {
    this.#aborted = error
    this.#controller?.abort(new Error(error.reason))
  }

  onRequestStart(controller: Dispatcher.DispatchController): void {
    this.#controller = controller
    if (this.#aborted !== undefined) controller.abort(new Error(this.#aborted.reason))
  }

  onResponseStart(_: Dispatcher.DispatchController, status: number, headers: ReplyHeaders): void {
    this.#status = status
    this.#headers = headers
    if (status !== 200 || !mediaType(headers).startsWith('text/event-stream')) return
    this.#decoder = new SseDecoder(this.#limit, (event) => this.#event(event))
    this.#sink.opened(headers)
  }

  onResponseData(_: Dispatcher.DispatchController, chunk: Buffer): void {
    if (this.#decoder !== undefined) return this.#feed(this.#decoder, chunk)
    if (this.#truncated) return
    this.#bytes += chunk.length
    if (this.#status >= 400 && this.#bytes > ERROR_BODY_LIMIT) {
      this.#truncated = true
      return
    }
    if (this.#bytes > this.#limit) return this.abort(tooLarge(`a reply is larger than ${this.#limit} bytes`))
    this.#chunks.push(chunk)
  }

  onResponseEnd(): void {
    if (this.#decoder !== undefined) return this.#sink.ended()
    const [first] = this.#chunks
    const whole = this.#chunks.length === 1 && first !== undefined ? first : Buffer.concat(this.#chunks)
    this.#sink.body(this.#status, this.#headers, whole.toString('utf8'))
  }

  onResponseError(_: Dispatcher.DispatchController | undefined, cause: Error): void {
    this.#sink.failed(this.#aborted ?? transportError(cause, this.sent))
  }

  #feed(decoder: SseDecoder, chunk: Buffer): void {
    try {
      decoder.feed(chunk)
    } catch (error) {
      if (!(error instanceof SseOverflow)) throw error
      this.abort(tooLarge(error.message))
    }
  }

  #event(event: SseEvent): void {
    const taken = this.#sink.event(event)
    if (taken === undefined) return
    this.#waiting++
    this.#controller?.pause()
    void taken.finally(() => {
      if (--this.#waiting === 0) this.#controller?.resume()
    })
  }
}

/** The media type of a reply, in lower case; empty when it has none. */
export function mediaType(headers: ReplyHeaders): string {
  const value = headers['content-type']
  return typeof value === 'string' ? value.toLowerCase() : ''
}

function tooLarge(message: string): GatewayError {
  return gatewayError('reply_too_large', message, { sent: true })
}

/** Codes of errors that happen before a single byte was sent. */
const neverConnected = new Set([
  'ECONNREFUSED',
  'ENOTFOUND',
  'EAI_AGAIN',
  'EHOSTUNREACH',
  'ENETUNREACH',
  'UND_ERR_CONNECT_TIMEOUT',
  'UND_ERR_CLOSED',
  'UND_ERR_DESTROYED',
  'DEPTH_ZERO_SELF_SIGNED_CERT',
  'SELF_SIGNED_CERT_IN_CHAIN',
  'UNABLE_TO_VERIFY_LEAF_SIGNATURE',
  'CERT_HAS_EXPIRED',
  'ERR_TLS_CERT_ALTNAME_INVALID',
])

function transportError(cause: Error & { code?: string }, sent: boolean): GatewayError {
  const code = cause.code ?? cause.name
  if (neverConnected.has(code)) return gatewayError('upstream_unavailable', `cannot connect (${code})`)
  if (code === 'UND_ERR_HEADERS_TIMEOUT' || code === 'UND_ERR_BODY_TIMEOUT') {
    return gatewayError('attempt_timeout', 'the server fell silent', { sent })
  }
  return gatewayError('upstream_disconnected', `the connection broke (${code})`, { sent })
}
