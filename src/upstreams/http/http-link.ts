import type { Signal } from '../../mesh/cancel.ts'
import type { Answer, Call, Caller, Message, Outcome } from '../../mesh/call.ts'
import { gatewayError, type GatewayError } from '../../mesh/errors.ts'
import { kindOf, readMessage } from '../../protocol/jsonrpc.ts'
import { withoutEnvelope } from '../../protocol/envelope.ts'
import { HttpExchange, type ExchangeOptions } from './http-exchange.ts'
import { HttpListener } from './http-listener.ts'
import type { HttpOptions } from './http.ts'
import { answerTo, leave, postAway } from './http-post.ts'
import { HttpSession } from './http-session.ts'
import type { Reading } from './http-status.ts'
import type { HttpWire } from './http-wire.ts'
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
  readonly #session: HttpSession
  readonly #underWay = new Set<HttpExchange>()
  readonly #end = new AbortController()
  #listener: HttpListener | undefined

  constructor(options: HttpOptions, wire: HttpWire, caller: Caller) {
    this.#options = options
    const { clock, maxReply, onVersionError } = options
    this.#exchangeOptions = { clock, maxReply, underWay: this.#underWay, post: this.post, onVersionError }
    this.#wire = wire
    this.#caller = caller
    this.#session = new HttpSession({
      wire,
      hello: caller.hello,
      exchange: this.#exchangeOptions,
      channel: {
        open: () => undefined,
        pause: () => undefined,
        send: (message, answer) => this.#pass(message, answer),
      },
      onReopened: () => this.#listener?.restart(),
    })
  }

  get greeting(): Message {
    return this.#session.greeting
  }

  /** A server that names no session keeps none. */
  get keepsState(): boolean {
    return this.#wire.sessionId !== undefined
  }

  /** Goes on under a session id that nobody has given out: the server itself then says that it knows no such session. */
  loseSession(): boolean {
    if (this.#wire.sessionId === undefined) return false
    this.#wire.adopt('lost-on-purpose', String(this.greeting.value.protocolVersion))
    return true
  }

  get ended(): AbortSignal {
    return this.#end.signal
  }

  /** The handshake. Rejects with a `GatewayError`. */
  initialize(signal: Signal): Promise<void> {
    return this.#session.open(signal)
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
    const session = this.#session
    session.state.note(call)
    if (session.lost) return this.#recover(call)
    const { epoch } = session
    return this.#run(call).then((reading) => {
      if (reading !== 'lost') return reading
      session.lose(epoch)
      return this.#recover(call)
    })
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
      await this.#session.reopen(this.ended)
    } catch (error) {
      return { kind: 'failed', error: error as GatewayError }
    }
    await this.#listener?.opening
    call.record.recoveries++
    const reading = await this.#run(call)
    return reading === 'lost' ? lostForGood('the server forgot a session that it had just opened') : reading
  }

  readonly post = (text: string): Promise<void> =>
    this.ended.aborted ? Promise.reject(this.ended.reason) : postAway(this.#wire, text)

  listen(): void {
    this.#listener ??= new HttpListener(this.#wire, {
      clock: this.#options.clock,
      maxReply: this.#options.maxReply,
      receive: (data) => this.#receive(data),
      ready: () => this.#session.reopen(this.ended),
      onLost: () => this.#session.lose(),
    })
  }

  #receive(data: string): void {
    const message = readMessage(data)
    if (message === undefined) return
    const kind = kindOf(message.value)
    if (kind !== 'response')
      this.#pass(message, kind === 'request' ? answerTo(message, this.post) : undefined)
  }

  #pass(message: Message, answer: Answer | undefined): undefined {
    this.#caller.receive(this.#options.server, message, answer)
  }

  async close(): Promise<void> {
    if (this.ended.aborted) return
    this.#over(gatewayError('cancelled', 'the conversation was closed'))
    if (this.#wire.sessionId === undefined) return
    await leave(this.#wire, this.#options.clock, GOODBYE_MS)
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
