import type { ServerResponse } from 'node:http'
import type { Answer, Caller, Message, RequestId } from '../mesh/call.ts'
import type { Cancellation } from '../mesh/cancel.ts'
import type { Cancel, Clock, Millis } from '../mesh/clock.ts'
import { gatewayError, type GatewayError } from '../mesh/errors.ts'
import { errorText } from '../protocol/jsonrpc.ts'
import type { LegacyVersion } from '../protocol/versions.ts'
import { Asked } from './asked.ts'
import { EventStream, readEventId } from './event-stream.ts'
import type { Front } from './front.ts'
import { ReplayLog, type ReplayLimits } from './replay.ts'

export interface SessionParts {
  /** The `Mcp-Session-Id`. */
  readonly id: string
  readonly front: Front
  /** The client's own `initialize` params. */
  readonly hello: Readonly<Record<string, unknown>>
  /** HTTP headers that came with them, lower case. */
  readonly headers: Readonly<Record<string, string | string[] | undefined>>
  readonly version: LegacyVersion
  readonly clock: Clock
  readonly replay: ReplayLimits
  /** Puts a server's message into the words of the front; undefined drops it. */
  readonly inbound: (server: string, message: Message) => Message | undefined
}

/** The stream for what belongs to no call. */
const STANDALONE = 0

/** Equal `list_changed` notifications within this time become one, in milliseconds. */
const COALESCE_MS: Millis = 250

/** A client of the legacy era between its `initialize` and its end. */
export class Session implements Caller {
  readonly id: string
  readonly front: Front
  readonly hello: Readonly<Record<string, unknown>>
  readonly headers: SessionParts['headers']
  readonly version: LegacyVersion
  readonly takesInputRequired = false
  /** Calls under way, by the client's ids. */
  readonly inFlight = new Map<RequestId, Cancellation>()
  readonly asked = new Asked()
  readonly #parts: SessionParts
  readonly #log: ReplayLog
  readonly #standalone: EventStream
  readonly #streams = new Map<number, EventStream>()
  readonly #coalescing = new Map<string, { cancel: Cancel; again: string | undefined }>()
  #streamCount = STANDALONE
  #lastUsed: Millis
  #listening = false

  constructor(parts: SessionParts) {
    this.id = parts.id
    this.front = parts.front
    this.hello = parts.hello
    this.headers = parts.headers
    this.version = parts.version
    this.#parts = parts
    this.#log = new ReplayLog(parts.replay)
    this.#standalone = new EventStream(STANDALONE, this.#log)
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
    return this.inFlight.size > 0 || this.#standalone.attached ? 0 : this.#parts.clock.now() - this.#lastUsed
  }

  touch(): void {
    this.#lastUsed = this.#parts.clock.now()
  }

  /** A stream for one POST, from its first message on. */
  openStream(response: ServerResponse): EventStream {
    const stream = new EventStream(++this.#streamCount, this.#log)
    this.#streams.set(stream.number, stream)
    stream.attach(response, { priming: this.primes })
    return stream
  }

  closeStream(stream: EventStream): void {
    stream.end()
    this.#streams.delete(stream.number)
  }

  /** The client listens: for everything outside of calls, or to a stream that it lost. False for an id that is none of ours. */
  listen(response: ServerResponse, lastEventId: string | undefined): boolean {
    const place =
      lastEventId === undefined ? { stream: STANDALONE, sequence: undefined } : readEventId(lastEventId)
    if (place === undefined || place.stream > this.#streamCount) return false
    const options = { after: place.sequence, priming: this.primes }
    if (place.stream === STANDALONE) {
      this.#listening = true
      this.#standalone.attach(response, options)
      response.once('close', () => this.touch())
    } else {
      const live = this.#streams.get(place.stream)
      const stream = live ?? new EventStream(place.stream, this.#log)
      stream.attach(response, options)
      if (live === undefined) stream.end()
    }
    return true
  }

  receive(server: string, message: Message, answer?: Answer): void {
    const text = this.textFor(server, message, answer)
    if (text === undefined) return
    const method = message.value.method as string
    if (method.endsWith('/list_changed')) this.#coalesce(method, text)
    else this.#standalone.tell(text)
  }

  /** Tells the client something that came from no server. */
  tell(text: string): void {
    this.#standalone.tell(text)
  }

  /** A server's message as the client shall read it, if it shall; a request is kept until it is answered. */
  textFor(server: string, message: Message, answer: Answer | undefined): string | undefined {
    if (message.value.method === 'notifications/cancelled') return this.asked.withdraw(server, message)
    const inbound = this.#parts.inbound(server, message)
    if (answer === undefined || inbound === undefined) return inbound?.text
    const text = this.asked.ask(server, inbound, answer)
    if (text === undefined)
      void answer(errorText(null, -32603, 'the client owes too many answers')).catch(ignore)
    return text
  }

  /** Ends everything that is under way. */
  close(error: GatewayError = gatewayError('cancelled', 'the session ended')): void {
    for (const call of this.inFlight.values()) call.abort(error)
    for (const { cancel } of this.#coalescing.values()) cancel()
    for (const stream of this.#streams.values()) stream.end()
    this.#standalone.end()
  }

  /** The first of a burst goes out at once, the last when the burst is over. */
  #coalesce(method: string, text: string): void {
    const running = this.#coalescing.get(method)
    if (running !== undefined) {
      running.again = text
      return
    }
    this.#standalone.tell(text)
    const cancel = this.#parts.clock.after(COALESCE_MS, () => {
      const again = this.#coalescing.get(method)?.again
      this.#coalescing.delete(method)
      if (again !== undefined) this.#coalesce(method, again)
    })
    this.#coalescing.set(method, { cancel, again: undefined })
  }
}

/** The server that asked is gone: nobody waits for the refusal. */
function ignore(): void {}
