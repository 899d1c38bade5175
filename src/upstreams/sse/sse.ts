import type { HttpServerConfig } from '../../config/schema/server-schema.ts'
import type { AnswerShape } from '../../mesh/wire-shape.ts'
import type { Caller, Layer } from '../../mesh/call.ts'
import { Cancellation, type Signal } from '../../mesh/cancel.ts'
import type { Clock, Millis } from '../../mesh/clock.ts'
import { gatewayError, type GatewayError, isGatewayError } from '../../mesh/errors.ts'
import { readMessage, requestText } from '../../protocol/jsonrpc.ts'
import { type Overlong, repliedId } from '../../protocol/overlong.ts'
import type { SseEvent } from '../../protocol/sse.ts'
import type { Log } from '../../telemetry/log.ts'
import { abortError, orAborted, whenAborted, within } from '../failure.ts'
import { forwarded } from '../forwarded.ts'
import { connectorOf } from '../../wire/connector.ts'
import { type ReplyHeaders, lossProof, readReply } from '../http/http-status.ts'
import { readTls } from '../http/http-pools.ts'
import { HttpReply, type ReplyLimits, type ReplySink } from '../http/http-reply.ts'
import { postAway } from '../http/http-post.ts'
import { HttpWire } from '../http/http-wire.ts'
import type { Calls } from '../http/calls.ts'
import { callsTo, type HttpEngineName } from '../http/call-sockets.ts'
import { OneWayPosts } from '../http/one-way-posts.ts'
import { StreamConnections } from '../http/stream-connections.ts'
import { AnswerShaper } from '../../wire/shaped-answers.ts'
import { Sequence } from '../pipe/sequence.ts'
import { MessageSession } from '../pipe/message-session.ts'
import type { Connect, Pipe, PipeEvents, Posting } from '../pipe/pipe.ts'
import { type Conceal, concealing } from '../server-words.ts'
import { SharedAttempts } from '../shared-attempts.ts'
import { soloAudience } from '../shared/audience.ts'
import { RememberedSession } from '../shared/remembered-session.ts'
import { SessionStates } from '../shared/session-state.ts'
import type { ServerReplies } from '../unfinished-replies.ts'
import { Unread } from '../unread.ts'
import type { UpstreamSession, Upstream } from '../upstream.ts'

interface SseOptions {
  readonly server: string
  readonly config: HttpServerConfig
  /** Address of the event stream. */
  readonly url: string
  /** Counts the buffered bytes of incomplete replies; optional. */
  readonly unfinished?: ServerReplies | undefined
  readonly clock: Clock
  readonly log: Log
  /** Faults of the handshakes and pings of upstream sessions; optional. */
  readonly faults?: Layer | undefined
  /** The engine of calls; default `node`. */
  readonly http?: HttpEngineName | undefined
}

/** A server behind HTTP+SSE, the transport of version 2024-11-05: an upstream session per caller. */
export class SseUpstream implements Upstream {
  readonly #options: SseOptions
  readonly #log: Log
  readonly #conceal: Conceal
  readonly #posts: Calls
  readonly #oneWay: OneWayPosts
  readonly #streams: StreamConnections
  readonly #upstreamSessions = new Set<MessageSession>()
  readonly #states = new SessionStates()
  #closed = false

  constructor(options: SseOptions) {
    const { timeouts, tls, connections } = options.config
    const { origin } = new URL(options.url)
    const socket = { timeout: timeouts.connect, ...readTls(tls) }
    const connect = connectorOf(socket)
    this.#options = options
    this.#log = options.log.child({ server: options.server })
    this.#conceal = concealing(options.config)
    const ofPosts = { connections, headersTimeout: timeouts.idle, bodyTimeout: timeouts.idle }
    this.#posts = callsTo(origin, { ...ofPosts, connect: socket }, options.http)
    this.#oneWay = new OneWayPosts(origin, { ...ofPosts, connect })
    this.#streams = new StreamConnections(origin, {
      connect,
      headersTimeout: timeouts.idle,
      bodyTimeout: 0,
    })
  }

  async open(caller: Caller, signal: Signal): Promise<UpstreamSession> {
    if (this.#closed) throw gatewayError('shutting_down', 'the server is being stopped')
    const { server, clock, faults } = this.#options
    const terms = {
      server,
      initializeParams: caller.initializeParams,
      audience: soloAudience(server, caller),
      clock,
      log: this.#log,
      conceal: this.#conceal,
      faults,
    }
    const upstreamSession = await MessageSession.open(this.#connectFor(caller), terms, signal)
    this.#upstreamSessions.add(upstreamSession)
    whenAborted(upstreamSession.ended, () => this.#upstreamSessions.delete(upstreamSession))
    const told = { server, clock, log: this.#log }
    return RememberedSession.tell(upstreamSession, this.#states.of(caller), told, signal)
  }

  /** Resolves to whether the address serves an event stream whose first event names an endpoint. Never rejects. */
  async namesEndpoint(caller: Caller, signal: Signal): Promise<boolean> {
    try {
      const pipe = await this.#connectFor(caller)(deaf, signal)
      void pipe.close()
      return true
    } catch {
      // The address serves no such stream.
      return false
    }
  }

  async close(): Promise<void> {
    this.#closed = true
    await Promise.all([...this.#upstreamSessions].map((upstreamSession) => upstreamSession.close()))
    await Promise.all([this.#posts.destroy(), this.#oneWay.destroy(), this.#streams.destroy()])
  }

  #connectFor(caller: Caller): Connect {
    const { url, clock, config, unfinished } = this.#options
    const wireTo = (endpoint: string) => this.#wireTo(endpoint, caller)
    return async (events, signal) => {
      const pipe = new SsePipe({
        wire: wireTo(url),
        wireTo,
        events,
        maxReply: config.maxReply,
        unfinished,
        clock,
        ackMs: config.timeouts.discovery,
      })
      try {
        await orAborted(pipe.ready, signal)
      } catch (error) {
        void pipe.close()
        throw error
      }
      return pipe
    }
  }

  /** Returns the wire to an endpoint. Throws for an endpoint of another origin, which must not get credentials. */
  #wireTo(endpoint: string, caller: Caller): HttpWire {
    const { url, config } = this.#options
    const target = URL.canParse(endpoint, url) ? new URL(endpoint, url) : undefined
    if (target?.origin !== new URL(url).origin) {
      throw gatewayError('upstream_refused', 'the server names an endpoint of another origin')
    }
    const { headers, forwardHeaders } = config
    const agent = forwarded(forwardHeaders, caller.headers)
    const wire = { url: target.href, headers, agent }
    return HttpWire.to(wire, { calls: this.#posts, oneWay: this.#oneWay, streams: this.#streams })
  }
}

/** Ignores all events of a stream that was opened only to find out the transport. */
const deaf: PipeEvents = { message: () => undefined, overlong: () => undefined, closed: () => undefined }

/** How long the server may take to accept a ping, in milliseconds. */
const PING_MS: Millis = 5_000

/** Limits of unacknowledged posts, calls included. */
const LIMITS = { messages: 4_096, bytes: 32 * 1024 ** 2 }

interface SsePipeParts extends ReplyLimits {
  /** The wire that opens the event stream. */
  readonly wire: HttpWire
  /** Returns the wire to the named endpoint. Throws a `GatewayError` for a forbidden endpoint. */
  readonly wireTo: (endpoint: string) => HttpWire
  readonly events: PipeEvents
  readonly clock: Clock
  /** How long the server may take to acknowledge a message without an answer, in milliseconds. */
  readonly ackMs: Millis
}

/** An event stream with the server's messages, and the endpoint it names for posts. */
class SsePipe implements Pipe, ReplySink {
  /** Resolves once the server has named its endpoint; rejects with a `GatewayError`. */
  readonly ready: Promise<void>
  readonly gone: Promise<void>
  readonly #parts: SsePipeParts
  readonly #stream: HttpReply
  #posts: HttpWire | undefined
  readonly #unread = new Unread(LIMITS)
  /** Handles messages in order: the events of a chunk arrive at once, even before the first was handled. */
  readonly #messages = new Sequence<string>((data) => this.#parts.events.message(data))
  readonly #answers = new AnswerShaper({
    pass: (data) => this.#messages.pass(data),
    instead: ({ texts }) => this.#passAll(texts),
  })
  #over: GatewayError | undefined
  readonly #ended = new Cancellation()
  /** Asks whether the server has forgotten the upstream session. */
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
    const { oneWay } = posting
    if (oneWay === undefined)
      return this.#unread.send(text, () => postMessage(posts, text, posting, this.#refused))
    const { clock, ackMs: limitMs } = this.#parts
    // Cancellations do not wait for notifications of the same session, which the server may accept slowly.
    const sender = oneWay === 'notification' ? this : this.#ended
    return this.#unread.send(text, () =>
      postAway(posts, text, { clock, limitMs, sender, signal: this.#ended }),
    )
  }

  shape(id: number, shape: AnswerShape): () => void {
    return this.#answers.add(id, shape)
  }

  close(): Promise<void> {
    this.abort(gatewayError('cancelled', 'the upstream session was closed'))
    return this.gone
  }

  abort(error: GatewayError): void {
    this.#stream.abort(error)
  }

  opened(): void {}

  event({ type, data }: SseEvent): Promise<void> | undefined {
    if (type === 'endpoint') this.#connect(data)
    else if (type === 'message' && this.#posts !== undefined && data !== '') return this.#answers.pass(data)
    return undefined
  }

  overlong(_: string | undefined, ends: Overlong): void {
    this.#parts.events.overlong(repliedId(ends), this.#parts.maxReply)
  }

  /** Handles a reply without an event stream. */
  body(status: number, headers: ReplyHeaders, text: string): void {
    const reading = readReply('', status, headers, text, {
      hasSession: false,
      wallMs: this.#parts.clock.wall(),
      conceal: (words) => this.#parts.wire.concealing()(words),
    })
    this.failed(reading.kind === 'failed' ? reading.error : badStatus(status))
  }

  ended(): void {
    this.failed(gatewayError('upstream_disconnected', 'the event stream ended'))
  }

  failed(cause: GatewayError): void {
    if (this.#over !== undefined) return
    // The stream had too much data; calls over the stream are not at fault.
    const error =
      cause.reason === 'overloaded'
        ? gatewayError('upstream_disconnected', `the event stream was ended: ${cause.message}`)
        : cause
    this.#over = error
    this.#ended.abort(error)
    this.#answers.end()
    this.#failed(error)
    this.#parts.events.closed(error)
    this.#closed()
  }

  #connect(endpoint: string): void {
    try {
      this.#posts = this.#parts.wireTo(endpoint)
      this.#opened()
    } catch (error) {
      const why = 'the server names an endpoint with an unreadable user or password'
      this.abort(isGatewayError(error) ? error : gatewayError('upstream_refused', why))
    }
  }

  /** Passes texts on in order. Never rejects, because nobody waits for held answers. */
  async #passAll(texts: readonly string[]): Promise<void> {
    try {
      // Passes all texts at once, so later messages of the same chunk cannot come between.
      await Promise.all(texts.map((data) => this.#messages.pass(data) ?? Promise.resolve()))
    } catch (error) {
      this.abort(gatewayError('internal', `cannot read from the server (${(error as Error).message})`))
    }
  }

  /**
   * Returns the error for a refused message. A refusal that looks like a lost session ends the stream only if a ping is
   * refused in the same way.
   */
  readonly #refused = async (status: number, headers: ReplyHeaders, text: string): Promise<GatewayError> => {
    const context = {
      hasSession: this.#posts !== undefined,
      wallMs: this.#parts.clock.wall(),
      conceal: (words: string) => (this.#posts ?? this.#parts.wire).concealing()(words),
    }
    const reading = readReply('', status, headers, text, context)
    const outcome = reading.kind === 'suspected_loss' ? reading.otherwise : reading
    const error = outcome.kind === 'failed' ? outcome.error : badStatus(status)
    if (reading.kind !== 'suspected_loss' || reading.proof === 'none') return error
    if (!(await this.#asking.join().catch(() => false))) return error
    const lost = gatewayError(
      'upstream_disconnected',
      `the server forgot the upstream session (HTTP ${status})`,
    )
    this.abort(lost)
    return lost
  }

  /**
   * Resolves to whether the server refuses a ping as in a lost session. Ignores the answer to the ping; a missing
   * answer proves nothing.
   */
  #ask(end: Signal): Promise<boolean> {
    const ping = requestText('breakwater:ping', 'ping')
    return within(PING_MS, this.#parts.clock, end, (signal) => {
      const asked = new Promise<boolean>((resolve) => {
        const refused = (status: number, _: ReplyHeaders, text: string) => {
          const proof = lossProof(status, readMessage(text))
          resolve(proof !== undefined && proof !== 'none')
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
  return gatewayError('upstream_refused', `the server refused the request (HTTP ${status})`, {
    sent: true,
    status,
  })
}

/** Largest acknowledgement, in bytes; nobody reads acknowledgements. */
const ACK_LIMIT = 64 * 1024

/** Returns the error for an acknowledgement with a refusal. */
type Refused = (status: number, headers: ReplyHeaders, text: string) => GatewayError | Promise<GatewayError>

/** Posts a message; its answer comes over the event stream. Rejects with a `GatewayError`. */
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
      failed(error) {
        signal?.removeEventListener('abort', takeBack)
        reject(error)
      },
    }
    const reply = new HttpReply(sink, { maxReply: ACK_LIMIT })
    signal?.addEventListener('abort', takeBack)
    wire.post(text, headers, reply)
  })
}
