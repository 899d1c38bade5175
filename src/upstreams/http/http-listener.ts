import { ignore } from '../../mesh/cancel.ts'
import type { Cancel, Clock, Millis } from '../../mesh/clock.ts'
import { gatewayError, type GatewayError } from '../../mesh/errors.ts'
import type { WireShape } from '../../mesh/wire-shape.ts'
import { readMessage } from '../../protocol/jsonrpc.ts'
import type { SseEvent } from '../../protocol/sse.ts'
import { type ReplyHeaders, lossProof } from './http-status.ts'
import { HttpReply, type ReplyLimits, type ReplySink } from './http-reply.ts'
import type { StandingStreams } from './standing-stream.ts'
import type { HttpWire } from './http-wire.ts'

export interface ListenerOptions extends ReplyLimits {
  readonly clock: Clock
  /** Returns the wire of the current session; a reopened session has another wire. */
  readonly currentWire: () => HttpWire
  /** Takes the data of each event; a promise holds back later events until resolved. */
  readonly receive: (data: string) => Promise<void> | undefined | void
  /** A promise holds back later events until resolved. */
  readonly backpressure?: () => Promise<void> | undefined
  /** Resolves once a session exists. */
  readonly ready: () => Promise<void>
  /** Whether the server may have forgotten the session of `wire`; `ready` then opens a new session. Never rejects. */
  readonly isLost: (wire: HttpWire) => Promise<boolean>
  /** Called after a reply that may mean that the session of `wire` is lost; optional. */
  readonly doubt?: (wire: HttpWire) => void
  /** Faults of the stream; optional. */
  readonly past?: StandingStreams | undefined
}

/** The first and the longest pause before reopening a broken stream, in milliseconds. */
export const FIRST_RETRY_MS = 1_000
export const LAST_RETRY_MS = 30_000

/** Shortest pause before another request, whatever pause the server names; in milliseconds. */
const LEAST_RETRY_MS = 100

/** How long to wait for a server to open or refuse the stream, in milliseconds. */
export const PATIENCE_MS = 1_000

/** Holds the session's own event stream open: reconnects with a doubling pause, and resumes at the break. */
export class HttpListener implements ReplySink {
  readonly #options: ListenerOptions
  /** The wire of the last requested stream. */
  #wire: HttpWire
  #reply: HttpReply | undefined
  #retryMs: Millis = FIRST_RETRY_MS
  /** The first pause of the next series of retries; the server may set it with an event. */
  #firstMs: Millis = FIRST_RETRY_MS
  /** When the stream opened; undefined while closed. */
  #openSince: Millis | undefined
  #lastEventId: string | undefined
  #cancelRetry: Cancel | undefined
  #closed = false
  /** Counts connection attempts: a slow attempt may be outdated. */
  #tries = 0
  /**
   * Set while the stream opens; resolves once the stream is open or known to be missing. Until then the gateway misses
   * messages outside of calls. A plain field, because each call reads it.
   */
  opening: Promise<void> | undefined
  #settle = ignore

  constructor(options: ListenerOptions) {
    this.#options = options
    this.#wire = options.currentWire()
    this.#connect()
  }

  close(): void {
    this.#closed = true
    this.#settle()
    this.#cancelRetry?.()
    this.#reply?.abort(gatewayError('cancelled', 'the upstream session ended'))
  }

  /** Forgets the place in the old stream, and opens the new session's stream. */
  restart(): void {
    this.#lastEventId = undefined
    this.#firstMs = FIRST_RETRY_MS
    this.#takeUpAgain('the session was opened again')
  }

  /**
   * Requests the stream at once, unless it is open or requested already; with `anew`, drops and resumes an open stream.
   */
  relisten(anew: boolean): void {
    if (anew || this.#reply === undefined) this.#takeUpAgain('the stream is requested again')
  }

  #takeUpAgain(why: string): void {
    this.#tries++
    this.#retryMs = this.#firstMs
    this.#reply?.abort(gatewayError('cancelled', why))
    this.#expect()
    this.#again(0)
  }

  opened(): void {
    this.#settle()
    this.#openSince = this.#options.clock.now()
  }

  backpressure(): Promise<void> | undefined {
    return this.#options.backpressure?.()
  }

  event(event: SseEvent): Promise<void> | undefined {
    this.#lastEventId = event.id
    if (event.retryMs !== undefined) {
      this.#firstMs = Math.max(LEAST_RETRY_MS, Math.min(event.retryMs, LAST_RETRY_MS))
      this.#retryMs = this.#firstMs
    }
    if (event.data === '' || event.type !== 'message' || this.#closed) return undefined
    this.#retryMs = this.#firstMs
    return this.#options.receive(event.data) ?? undefined
  }

  /** Skips an event over the size limit, also when the stream is resumed. */
  overlong(id: string | undefined): void {
    this.#lastEventId = id
  }

  /**
   * Handles a reply without a stream. Retries after a lost session or a server error; otherwise the server offers no
   * stream.
   */
  body(status: number, _: ReplyHeaders, text: string): void {
    this.#reply = undefined
    this.#settle()
    const wire = this.#wire
    const proof = wire.sessionId === undefined ? undefined : lossProof(status, readMessage(text))
    if (proof === 'none') this.#options.doubt?.(wire)
    if (status >= 500 || status === 429) return this.ended()
    if (proof === undefined || proof === 'none') return
    void this.#options.isLost(wire).then((lost) => {
      if (lost && wire === this.#wire) this.ended()
    })
  }

  ended(): void {
    this.#reply = undefined
    this.#settle()
    const openMs = this.#openSince === undefined ? 0 : this.#options.clock.now() - this.#openSince
    this.#openSince = undefined
    // Only a stream that stayed open for long resets the pause.
    if (openMs >= LAST_RETRY_MS) this.#retryMs = this.#firstMs
    this.#again(this.#retryMs)
    this.#retryMs = Math.min(this.#retryMs * 2, LAST_RETRY_MS)
  }

  failed(error: GatewayError): void {
    if (error.reason !== 'cancelled') this.ended()
  }

  #again(delayMs: Millis): void {
    this.#cancelRetry?.()
    if (this.#closed) return
    this.#cancelRetry = this.#options.clock.after(delayMs, () => this.#connect())
  }

  #expect(): void {
    this.opening ??= new Promise((resolve) => {
      const cancel = this.#options.clock.after(PATIENCE_MS, () => this.#settle())
      this.#settle = () => {
        cancel()
        this.opening = undefined
        this.#settle = ignore
        resolve()
      }
    })
  }

  #connect(): void {
    this.#expect()
    const mine = ++this.#tries
    const ifCurrent = (task: () => void) => () => {
      if (mine === this.#tries) task()
    }
    this.#options.ready().then(
      ifCurrent(() => this.#listen()),
      ifCurrent(() => this.ended()),
    )
  }

  #listen(): void {
    if (this.#closed) return
    this.#wire = this.#options.currentWire()
    const open = (sink: ReplySink, shapes?: readonly WireShape[]) => {
      this.#reply = new HttpReply(sink, this.#options)
      this.#wire.listen(this.#lastEventId, this.#reply, shapes)
    }
    if (this.#options.past === undefined) open(this)
    else this.#options.past.ask(this, open)
  }
}
