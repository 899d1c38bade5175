import type { Signal } from '../../mesh/cancel.ts'
import type { Answer, Call, Caller, Message, Outcome } from '../../mesh/call.ts'
import { gatewayError, type GatewayError } from '../../mesh/errors.ts'
import { isObject, kindOf, notificationText, readMessage, requestText } from '../../protocol/jsonrpc.ts'
import { withoutEnvelope } from '../../protocol/envelope.ts'
import { locate } from '../../protocol/json-span.ts'
import { LATEST_LEGACY } from '../../protocol/versions.ts'
import { answerTo, HttpExchange, type ExchangeOptions, type Request } from './http-exchange.ts'
import { HttpListener } from './http-listener.ts'
import type { HttpOptions } from './http.ts'
import { leave, postAway } from './http-post.ts'
import type { Reading } from './http-status.ts'
import type { HttpWire } from './http-wire.ts'
import { SessionState } from './session-state.ts'
import type { Link } from '../upstream.ts'

/** How long the goodbye to a server may take, in milliseconds. */
const GOODBYE_MS = 1_000

/**
 * A caller's conversation with one endpoint over Streamable HTTP. Request ids and progress tokens are the
 * caller's own, so bytes pass unchanged. When the server forgot the session, it is opened again, once.
 */
export class HttpLink implements Link {
  readonly #options: HttpOptions
  readonly #wire: HttpWire
  readonly #caller: Caller
  readonly #exchangeOptions: ExchangeOptions
  readonly #underWay = new Set<HttpExchange>()
  readonly #state = new SessionState()
  readonly #end = new AbortController()
  #greeting: Message = { text: '{}', value: {} }
  /** Counts the sessions that were opened; a loss is told of one of them. */
  #epoch = 0
  #stale = false
  #reopening: Promise<void> | undefined
  #listener: HttpListener | undefined

  constructor(options: HttpOptions, wire: HttpWire, caller: Caller) {
    this.#options = options
    const { clock, maxReply, onVersionError } = options
    this.#exchangeOptions = { clock, maxReply, underWay: this.#underWay, post: this.#post, onVersionError }
    this.#wire = wire
    this.#caller = caller
  }

  get greeting(): Message {
    return this.#greeting
  }

  /** A server that names no session keeps none. */
  get keepsState(): boolean {
    return this.#wire.sessionId !== undefined
  }

  /** Goes on under a session id that nobody has given out: the server itself then says that it knows no such session. */
  loseSession(): boolean {
    if (this.#wire.sessionId === undefined) return false
    this.#wire.adopt('lost-on-purpose', String(this.#greeting.value.protocolVersion))
    return true
  }

  get ended(): AbortSignal {
    return this.#end.signal
  }

  /** The handshake. Rejects with a `GatewayError`. */
  async initialize(signal: Signal): Promise<void> {
    this.#wire.reset()
    let sessionId: string | undefined
    const request = this.#ownRequest('initialize', this.#caller.hello, signal)
    const reading = await HttpExchange.run(this.#wire, request, {
      ...this.#exchangeOptions,
      onHeaders: (headers) => {
        sessionId = headers.get('mcp-session-id')
      },
    })
    this.#greeting = greetingOf(reading)
    const version = this.#greeting.value.protocolVersion
    this.#wire.adopt(sessionId, typeof version === 'string' ? version : LATEST_LEGACY)
    await this.post(notificationText('notifications/initialized'))
  }

  exchange(call: Call): Promise<Outcome> {
    // A call may make the server ask something at once, and not as a part of the call.
    const opening = this.#listener?.opening
    return opening === undefined ? this.#exchange(call) : opening.then(() => this.#exchange(call))
  }

  #exchange(call: Call): Promise<Outcome> {
    if (this.ended.aborted)
      return Promise.resolve({ kind: 'failed', error: this.ended.reason as GatewayError })
    call.record.sent = true
    this.#state.note(call)
    if (this.#stale) return this.#recover(call)
    const epoch = this.#epoch
    return this.#run(call).then((reading) => {
      if (reading !== 'lost') return reading
      if (epoch === this.#epoch) this.#stale = true
      return this.#recover(call)
    })
  }

  post(text: string): Promise<void> {
    if (this.ended.aborted) return Promise.reject(this.ended.reason)
    return postAway(this.#wire, text)
  }

  listen(): void {
    this.#listener ??= new HttpListener(this.#wire, {
      clock: this.#options.clock,
      maxReply: this.#options.maxReply,
      receive: (data) => this.#receive(data),
      ready: () => this.#reopen(),
      onLost: () => (this.#stale = true),
    })
  }

  async close(): Promise<void> {
    if (this.ended.aborted) return
    this.#over(gatewayError('cancelled', 'the conversation was closed'))
    if (this.#wire.sessionId === undefined) return
    await leave(this.#wire, this.#options.clock, GOODBYE_MS)
  }

  #run(call: Call): Promise<Reading> {
    const { id, message, headers, signal, channel, caller } = call
    const text = caller.takesInputRequired ? withoutEnvelope(message.text) : message.text
    return HttpExchange.run(this.#wire, { id, text, headers, signal, channel }, this.#exchangeOptions)
  }

  /** The server did not know the session, so it did not run the call: it is safe to send it again. */
  async #recover(call: Call): Promise<Outcome> {
    if (this.#options.sessionRecovery === 'surface') return lostForGood('the server forgot the session')
    try {
      await this.#reopen()
    } catch (error) {
      return { kind: 'failed', error: error as GatewayError }
    }
    await this.#listener?.opening
    call.record.recoveries++
    const reading = await this.#run(call)
    return reading === 'lost' ? lostForGood('the server forgot a session that it had just opened') : reading
  }

  /** Opens a lost session again, once for all who lost it. Rejects with a `GatewayError`. */
  #reopen(): Promise<void> {
    if (!this.#stale) return Promise.resolve()
    this.#reopening ??= this.#initializeAgain().finally(() => (this.#reopening = undefined))
    return this.#reopening
  }

  async #initializeAgain(): Promise<void> {
    const signal = this.#end.signal
    await this.initialize(signal)
    for (const { method, params } of this.#state.requests()) {
      await HttpExchange.run(this.#wire, this.#ownRequest(method, params, signal), this.#exchangeOptions)
    }
    this.#stale = false
    this.#epoch++
    this.#listener?.restart()
  }

  readonly #post = (text: string) => this.post(text)

  #ownRequest(method: string, params: unknown, signal: Signal): Request {
    const id = `breakwater:${method}`
    const channel = {
      open: () => undefined,
      pause: () => undefined,
      send: (message: Message, answer?: Answer) => this.#pass(message, answer),
    }
    return { id, text: requestText(id, method, params), headers: undefined, signal, channel }
  }

  #receive(data: string): void {
    const message = readMessage(data)
    if (message === undefined) return
    const kind = kindOf(message.value)
    if (kind !== 'response')
      this.#pass(message, kind === 'request' ? answerTo(message, this.#post) : undefined)
  }

  #pass(message: Message, answer: Answer | undefined): undefined {
    this.#caller.receive(this.#options.server, message, answer)
  }

  #over(error: GatewayError): void {
    this.#listener?.close()
    this.#end.abort(error)
    for (const exchange of this.#underWay) exchange.abandon(error)
  }
}

function lostForGood(message: string): Outcome {
  return { kind: 'failed', error: gatewayError('session_lost', message) }
}

/** The `initialize` result of an outcome; throws its `GatewayError` when there is none. */
function greetingOf(reading: Reading): Message {
  if (reading === 'lost') throw gatewayError('session_lost', 'the server forgot the session')
  if (reading.kind !== 'answered') throw reading.error
  const { error, result } = reading.result.value
  if (isObject(error))
    throw gatewayError('upstream_refused', `initialize failed: ${String(error.message).slice(0, 200)}`)
  const span = locate(reading.result.text, ['result'])
  if (!isObject(result) || span === undefined) throw gatewayError('bad_reply', 'initialize has no result')
  return { text: reading.result.text.slice(span.start, span.end), value: result }
}
