import type { Signal } from '../../mesh/cancel.ts'
import type { Clock, Millis } from '../../mesh/clock.ts'
import { gatewayError, type GatewayError } from '../../mesh/errors.ts'
import { requestText } from '../../protocol/jsonrpc.ts'
import type { SseEvent } from '../../protocol/sse.ts'
import { abortError, orAborted, within } from '../failure.ts'
import type { ReplyHeaders } from '../http/http-headers.ts'
import { HttpReply, type ReplyLimits, type ReplySink } from '../http/http-reply.ts'
import { looksForgotten, readReply } from '../http/http-status.ts'
import type { HttpWire } from '../http/http-wire.ts'
import type { Pipe, PipeEvents, Posting } from '../pipe/pipe.ts'
import { SharedAttempts } from '../shared-attempts.ts'
import { Unread } from '../unread.ts'

/** How long the server may take to take a ping, in milliseconds. */
const PING_MS: Millis = 5_000

/** How much may be posted and not acknowledged, calls included. */
const LIMITS = { messages: 4_096, bytes: 32 * 1024 ** 2 }

interface SsePipeParts extends ReplyLimits {
  /** For the event stream. */
  readonly wire: HttpWire
  /** For messages, which go where the server says. Throws a `GatewayError` when we do not go there. */
  readonly wireTo: (endpoint: string) => HttpWire
  readonly events: PipeEvents
  readonly clock: Clock
}

/** An event stream that messages come from, and the endpoint that it names, where messages are posted to. */
export class SsePipe implements Pipe, ReplySink {
  /** Resolves once the server has named its endpoint; rejects with a `GatewayError`. */
  readonly ready: Promise<void>
  /** Resolves when the stream is over. */
  readonly gone: Promise<void>
  readonly #parts: SsePipeParts
  readonly #stream: HttpReply
  #posts: HttpWire | undefined
  readonly #unread = new Unread(LIMITS)
  #over: GatewayError | undefined
  #turn: Promise<void> | undefined
  /** Whether the server has forgotten the conversation. */
  readonly #asking: SharedAttempts<boolean>
  #opened: () => void = () => undefined
  #failed: (error: GatewayError) => void = () => undefined
  #closed: () => void = () => undefined

  constructor(parts: SsePipeParts) {
    this.#parts = parts
    this.#asking = new SharedAttempts(parts.clock, (end) => this.#ask(end), Infinity)
    this.ready = new Promise((resolve, reject) => {
      this.#opened = resolve
      this.#failed = reject
    })
    this.gone = new Promise((resolve) => (this.#closed = resolve))
    this.#stream = new HttpReply(this, parts)
    parts.wire.listen(undefined, this.#stream)
  }

  send(text: string, posting: Posting = {}): Promise<void> {
    if (this.#over !== undefined) return Promise.reject(this.#over)
    if (this.#posts === undefined)
      return Promise.reject(gatewayError('upstream_unavailable', 'not connected yet'))
    const posts = this.#posts
    return this.#unread.send(text, () => postMessage(posts, text, posting, this.#refused))
  }

  close(): Promise<void> {
    this.abort(gatewayError('cancelled', 'the conversation was closed'))
    return this.gone
  }

  /** Ends the stream for a reason. */
  abort(error: GatewayError): void {
    this.#stream.abort(error)
  }

  opened(): void {}

  event({ type, data }: SseEvent): Promise<void> | undefined {
    if (type === 'endpoint') this.#connect(data)
    else if (this.#posts !== undefined && data !== '') return this.#pass(data)
    return undefined
  }

  /** The server answered the request for its event stream with something else. */
  body(status: number, headers: ReplyHeaders, text: string): void {
    const reading = readReply('', status, headers, text, {
      hasSession: false,
      wallMs: this.#parts.clock.wall(),
    })
    this.failed(reading.kind === 'failed' ? reading.error : badStatus(status))
  }

  ended(): void {
    this.failed(gatewayError('upstream_disconnected', 'the event stream ended'))
  }

  failed(error: GatewayError): void {
    if (this.#over !== undefined) return
    this.#over = error
    this.#failed(error)
    this.#parts.events.closed(error)
    this.#closed()
  }

  #connect(endpoint: string): void {
    try {
      this.#posts = this.#parts.wireTo(endpoint)
      this.#opened()
    } catch (error) {
      this.abort(error as GatewayError)
    }
  }

  /** One after another: the events of a chunk come all at once, whether or not the first was taken yet. */
  #pass(data: string): Promise<void> | undefined {
    const { events } = this.#parts
    const taken =
      this.#turn === undefined ? events.message(data) : this.#turn.then(() => events.message(data))
    const turn = taken?.finally(() => {
      if (this.#turn === turn) this.#turn = undefined
    })
    this.#turn = turn
    return turn
  }

  /**
   * How a message ended that was not taken. The conversation lives as long as its event stream: a reply that looks as if
   * it were lost ends it only if a ping gets the same.
   */
  readonly #refused = async (status: number, headers: ReplyHeaders, text: string): Promise<GatewayError> => {
    const context = { hasSession: this.#posts !== undefined, wallMs: this.#parts.clock.wall() }
    const reading = readReply('', status, headers, text, context)
    const outcome = reading.kind === 'suspected_loss' ? reading.otherwise : reading
    const error = outcome.kind === 'failed' ? outcome.error : badStatus(status)
    if (reading.kind !== 'suspected_loss' || !(await this.#asking.join().catch(() => false))) return error
    const lost = gatewayError('upstream_disconnected', `the server forgot the conversation (HTTP ${status})`)
    this.abort(lost)
    return lost
  }

  /**
   * Asks by a message that nobody waits for the answer of: whether it is refused is all that matters. One that gets no
   * answer proves nothing.
   */
  #ask(end: Signal): Promise<boolean> {
    const ping = requestText('breakwater:ping', 'ping')
    return within(PING_MS, this.#parts.clock, end, (signal) => {
      const asked = new Promise<boolean>((resolve) => {
        const refused = (status: number, _: ReplyHeaders, text: string) => {
          resolve(looksForgotten(status, text))
          return badStatus(status)
        }
        const taken = () => resolve(false)
        if (this.#posts === undefined) taken()
        else postMessage(this.#posts, ping, { signal }, refused).then(taken, taken)
      })
      return orAborted(asked, signal)
    })
  }
}

function badStatus(status: number): GatewayError {
  return gatewayError('upstream_refused', `the server refused the request (HTTP ${status})`, { sent: true })
}

/** What an acknowledgement may hold; nobody reads it. */
const ACK_LIMIT = 64 * 1024

/** How an acknowledgement ended, when it says that the message was not taken. */
type Refused = (status: number, headers: ReplyHeaders, text: string) => GatewayError | Promise<GatewayError>

/** Posts one message whose answer comes over the event stream. Rejects with a `GatewayError`. */
function postMessage(wire: HttpWire, text: string, posting: Posting, refused: Refused): Promise<void> {
  const { signal, onWrite, headers } = posting
  return new Promise((resolve, reject) => {
    const takeBack = () => reply.abort(abortError(signal as Signal))
    const sink: ReplySink = {
      started() {
        signal?.removeEventListener('abort', takeBack)
        onWrite?.()
      },
      opened: () => resolve(),
      event: () => undefined,
      body(status, head, body) {
        if (status < 300) resolve()
        else void Promise.resolve(refused(status, head, body)).then(reject)
      },
      ended: () => undefined,
      failed: reject,
    }
    const reply = new HttpReply(sink, { maxReply: ACK_LIMIT })
    signal?.addEventListener('abort', takeBack)
    wire.post(text, headers, reply)
  })
}
