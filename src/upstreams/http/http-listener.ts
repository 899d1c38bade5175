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
  /** The wire of the session to listen to; another one when it was opened again. */
  readonly currentWire: () => HttpWire
  /** Takes the data of each event; a promise holds back what follows until it resolves. */
  readonly receive: (data: string) => Promise<void> | undefined | void
  /** A promise holds back what follows until it resolves. */
  readonly backpressure?: () => Promise<void> | undefined
  /** Resolves once there is a session to listen to. */
  readonly ready: () => Promise<void>
  /** Whether the server may have forgotten the session of `wire`; `ready` then opens a new one. Never rejects. */
  readonly isLost: (wire: HttpWire) => Promise<boolean>
  /** Told of a reply in the session of `wire` that may mean its loss, and much else; nobody is told unless given. */
  readonly doubt?: (wire: HttpWire) => void
  /** Faults of the stream; none unless given. */
  readonly past?: StandingStreams | undefined
}

/** The first and the longest pause before a stream that broke is asked for again, in milliseconds. */
export const FIRST_RETRY_MS = 1_000
export const LAST_RETRY_MS = 30_000

/** No server gets asked again sooner, whatever pause it names; in milliseconds. */
const LEAST_RETRY_MS = 100

/** How long a server that does not say at once whether there is a stream is waited for, in milliseconds. */
export const PATIENCE_MS = 1_000

/** Holds the session's own event stream open: reconnects with a doubling pause, and resumes where it broke off. */
export class HttpListener implements ReplySink {
  readonly #options: ListenerOptions
  /** The wire of the stream that was asked for last. */
  #wire: HttpWire
  #reply: HttpReply | undefined
  #retryMs: Millis = FIRST_RETRY_MS
  /** The pause after something has come, as the server wants it. */
  #firstMs: Millis = FIRST_RETRY_MS
  /** Since when the stream is open; undefined while it is not. */
  #openSince: Millis | undefined
  #lastEventId: string | undefined
  #cancelRetry: Cancel | undefined
  #closed = false
  /** Counts the tries to connect: one that takes its time may be out of date. */
  #tries = 0
  /**
   * Set while the stream is being opened; resolves when the stream is open, or when it is known that there is none for now. The
   * gateway does not hear what the server says outside of calls until then. A plain field: each call looks at it.
   */
  opening: Promise<void> | undefined
  // Nobody waits for the stream.
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

  /** Forgets the old session's place, and begins the new session's stream. */
  restart(): void {
    this.#lastEventId = undefined
    this.#firstMs = FIRST_RETRY_MS
    this.#takeUpAgain('the session was opened again')
  }

  /** Asks for the stream at once, unless it is there or on its way; with `anew` it is dropped then, and taken up behind the last event. */
  relisten(anew: boolean): void {
    if (anew || this.#reply === undefined) this.#takeUpAgain('the stream is asked for again')
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

  /** It is passed over, and not asked for again. */
  overlong(id: string | undefined): void {
    this.#lastEventId = id
  }

  /** Not a stream: the session may be lost, or the server may be in trouble; all else says that there is none. */
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
    // A stream that breaks as soon as it is open is as good as none.
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
