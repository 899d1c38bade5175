import type { ServerResponse } from 'node:http'
import { asking } from '../mesh/asking.ts'
import type { Answer, Caller, CallRecord, Message, RequestId } from '../mesh/call.ts'
import type { Cancellation } from '../mesh/cancel.ts'
import type { Clock, Millis } from '../mesh/clock.ts'
import { Coalescing } from '../mesh/coalescing.ts'
import { gatewayError, type GatewayError } from '../mesh/errors.ts'
import { errorText, INTERNAL_ERROR, METHOD_NOT_FOUND } from '../protocol/jsonrpc.ts'
import { isListChange } from '../protocol/list-changes.ts'
import type { LegacyVersion } from '../protocol/versions.ts'
import { Asked } from './asked.ts'
import type { Front } from './front.ts'
import type { ReplayBudget, ReplayLimits } from './replay.ts'
import { SessionStreams } from './session-streams.ts'
import { SessionTenants } from './tenancy.ts'
import type { UnreadReplies } from './unread-replies.ts'

export interface SessionParts {
  /** The `Mcp-Session-Id`. */
  readonly id: string
  readonly front: Front
  /** The client's own `initialize` params. */
  readonly hello: Readonly<Record<string, unknown>>
  /** HTTP headers that came with them, lower case, without `Authorization`. */
  readonly headers: Readonly<Record<string, string | string[] | undefined>>
  /** Digest of the `Authorization` that came with them; empty without one. */
  readonly principal: string
  readonly version: LegacyVersion
  /** The client that it was opened by, as its address tells. */
  readonly client: string
  readonly clock: Clock
  readonly replay: ReplayLimits
  readonly unread: UnreadReplies
  readonly replayBudget: ReplayBudget
  /** Puts a server's message into the words of the front; undefined drops it. */
  readonly inbound: (server: string, message: Message) => Message | undefined
}

/** A client of the legacy era between its `initialize` and its end. */
export class Session implements Caller {
  readonly id: string
  readonly front: Front
  readonly hello: Readonly<Record<string, unknown>>
  readonly headers: SessionParts['headers']
  readonly principal: string
  readonly version: LegacyVersion
  readonly client: string
  readonly takesInputRequired = false
  /** Whether it has had any request since its `initialize`. */
  used = false
  /** Calls under way, by the client's ids. */
  readonly inFlight = new Map<RequestId, Cancellation>()
  readonly asked = new Asked()
  readonly streams: SessionStreams
  readonly tenants: SessionTenants
  readonly #parts: SessionParts
  readonly #changes: Coalescing<string>
  #lastUsed: Millis
  #listening = false

  constructor(parts: SessionParts) {
    this.id = parts.id
    this.front = parts.front
    this.hello = parts.hello
    this.headers = parts.headers
    this.principal = parts.principal
    this.version = parts.version
    this.client = parts.client
    this.#parts = parts
    this.tenants = new SessionTenants(parts.id)
    this.streams = new SessionStreams(parts.replay, parts.replayBudget, this.primes, (response) =>
      this.wrote(response),
    )
    this.#changes = new Coalescing(parts.clock, (text) => this.tell(text))
    this.#lastUsed = parts.clock.now()
  }

  get listening(): boolean {
    return this.#listening
  }

  /** Whether the client knows events without data, and comes back to a stream that was ended early. */
  get primes(): boolean {
    return this.version >= '2025-11-25'
  }

  /** How long nothing has happened, in milliseconds; 0 while a call or a stream is open. */
  get idleMs(): Millis {
    return this.inFlight.size > 0 || this.streams.standalone.attached
      ? 0
      : this.#parts.clock.now() - this.#lastUsed
  }

  touch(): void {
    this.#lastUsed = this.#parts.clock.now()
  }

  /** Something was written to the client that may be too much for its connection. */
  wrote(response: ServerResponse): void {
    this.#parts.unread.wrote(response, this)
  }

  /** The client listens: for everything outside of calls, or to a stream that it lost. False for an id that is none of ours. */
  listen(response: ServerResponse, lastEventId: string | undefined): boolean {
    const stream = this.streams.attach(response, lastEventId)
    if (stream === this.streams.standalone) {
      this.#listening = true
      response.once('close', () => this.touch())
    }
    return stream !== undefined
  }

  receive(server: string, message: Message, answer?: Answer): void {
    const text = this.textFor(server, message, answer)
    if (text === undefined) return
    if (isListChange(message)) this.#changes.tell(message.value.method as string, text)
    else this.tell(text)
  }

  /** Tells the client something that came from no server. */
  tell(text: string): void {
    this.streams.standalone.tell(text)
  }

  /**
   * A server's message as the client shall read it, if it shall; a request is kept until it is answered, or until the
   * call has ended in the course of which it came. One that the client does not get is answered here.
   */
  textFor(
    server: string,
    message: Message,
    answer: Answer | undefined,
    call?: CallRecord,
  ): string | undefined {
    if (message.value.method === 'notifications/cancelled') return this.asked.withdraw(server, message)
    const inbound = this.#parts.inbound(server, message)
    if (answer === undefined) return inbound?.text
    if (inbound === undefined) {
      const method = String(message.value.method).slice(0, 200)
      void answer(errorText(null, METHOD_NOT_FOUND, `Method not found: ${method}`)).catch(ignore)
      return undefined
    }
    if (this.asked.isFull) {
      void answer(errorText(null, INTERNAL_ERROR, 'the client owes too many answers')).catch(ignore)
      return undefined
    }
    const question = call === undefined ? { answer } : asking(call, this.#parts.clock, answer)
    return this.asked.ask(server, inbound, question, call)
  }

  /** Ends everything that is under way. */
  close(error: GatewayError = gatewayError('cancelled', 'the session ended')): void {
    for (const call of this.inFlight.values()) call.abort(error)
    this.#changes.end()
    this.streams.endAll()
  }
}

/** The server that asked is gone: nobody waits for the refusal. */
function ignore(): void {}
