import type { Channel, Message } from '../../mesh/call.ts'
import type { Signal } from '../../mesh/cancel.ts'
import { gatewayError } from '../../mesh/errors.ts'
import { isObject, notificationText, requestText } from '../../protocol/jsonrpc.ts'
import { locate } from '../../protocol/json-span.ts'
import { LATEST_LEGACY } from '../../protocol/versions.ts'
import { HttpExchange, type ExchangeOptions } from './http-exchange.ts'
import type { Reading } from './http-status.ts'
import type { HttpWire } from './http-wire.ts'
import { SessionState } from './session-state.ts'

export interface HttpSessionParts {
  readonly wire: HttpWire
  /** The `initialize` params. */
  readonly hello: Readonly<Record<string, unknown>>
  readonly exchange: ExchangeOptions
  /** Takes what the server sends while it answers requests of ours. */
  readonly channel: Channel
  /** Told when a lost session was opened again. */
  readonly onReopened: () => void
}

/** A session at a server: opened by the handshake, and opened again once the server has forgotten it. */
export class HttpSession {
  /** What the server was asked to keep in mind. */
  readonly state = new SessionState()
  readonly #parts: HttpSessionParts
  #greeting: Message = { text: '{}', value: {} }
  #epoch = 0
  #lost = false
  #reopening: Promise<void> | undefined

  constructor(parts: HttpSessionParts) {
    this.#parts = parts
  }

  /** The `initialize` result. */
  get greeting(): Message {
    return this.#greeting
  }

  /** Counts the sessions that were opened: a loss is told of one of them. */
  get epoch(): number {
    return this.#epoch
  }

  /** Whether the server has forgotten the session. */
  get lost(): boolean {
    return this.#lost
  }

  /** The server does not know the session of `epoch`; one that was opened since is not meant. */
  lose(epoch = this.#epoch): void {
    if (epoch === this.#epoch) this.#lost = true
  }

  /** The handshake. Rejects with a `GatewayError`. */
  async open(signal: Signal): Promise<void> {
    const { wire, hello, exchange } = this.#parts
    wire.reset()
    let sessionId: string | undefined
    const reading = await this.#request('initialize', hello, signal, {
      ...exchange,
      onHeaders: (headers) => {
        sessionId = headers.get('mcp-session-id')
      },
    })
    this.#greeting = greetingOf(reading)
    const version = this.#greeting.value.protocolVersion
    wire.adopt(sessionId, typeof version === 'string' ? version : LATEST_LEGACY)
    await exchange.post(notificationText('notifications/initialized'))
  }

  /** Opens a lost session again, once for all who lost it. Rejects with a `GatewayError`. */
  reopen(signal: Signal): Promise<void> {
    if (!this.#lost) return Promise.resolve()
    this.#reopening ??= this.#openAgain(signal).finally(() => (this.#reopening = undefined))
    return this.#reopening
  }

  async #openAgain(signal: Signal): Promise<void> {
    await this.open(signal)
    for (const { method, params } of this.state.requests())
      await this.#request(method, params, signal, this.#parts.exchange)
    this.#lost = false
    this.#epoch++
    this.#parts.onReopened()
  }

  #request(method: string, params: unknown, signal: Signal, options: ExchangeOptions): Promise<Reading> {
    const { wire, channel } = this.#parts
    const id = `breakwater:${method}`
    const text = requestText(id, method, params)
    return HttpExchange.run(wire, { id, text, headers: undefined, signal, channel }, options)
  }
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
