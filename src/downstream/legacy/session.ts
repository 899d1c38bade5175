import type { ServerResponse } from 'node:http'
import type { Answer, Caller, CallRecord, Message, RequestId } from '../../mesh/call.ts'
import { Cancellation, ignore } from '../../mesh/cancel.ts'
import type { Clock, Millis } from '../../mesh/clock.ts'
import { Coalescing } from '../../mesh/coalescing.ts'
import { gatewayError, type GatewayError } from '../../mesh/errors.ts'
import { pauseDeadline, type ServerQuestion } from '../../mesh/pause-deadline.ts'
import { replaceAt } from '../../protocol/json-span.ts'
import {
  errorText,
  INTERNAL_ERROR,
  isObject,
  isRequestId,
  METHOD_NOT_FOUND,
  paramsOf,
} from '../../protocol/jsonrpc.ts'
import { isListChange } from '../../protocol/lists.ts'
import { isLegacyVersion, type LegacyVersion } from '../../protocol/versions.ts'
import { SessionCallPlace } from '../call-place.ts'
import type { Endpoint } from '../endpoint.ts'
import {
  EventStream,
  readEventId,
  type StreamCare,
  type ReplayBudget,
  ReplayLog,
} from '../http/event-stream.ts'
import type { KeepAlive } from '../keep-alive.ts'
import type { Asked, Quotas } from '../limits/quotas.ts'
import { SessionTenants } from '../../access/caller.ts'
import type { UnreadReplies } from '../http/unread-replies.ts'

export interface SessionParts {
  readonly id: string
  readonly endpoint: Endpoint
  /** The client's own `initialize` params. */
  readonly initializeParams: Readonly<Record<string, unknown>>
  /** HTTP headers of the `initialize` request, lower case, without `Authorization`. */
  readonly headers: Readonly<Record<string, string | string[] | undefined>>
  /** Digest of that request's `Authorization`; empty without the header. */
  readonly principal: string
  readonly version: LegacyVersion
  /** The client that opened the session, by address. */
  readonly client: string
  readonly clock: Clock
  readonly unread: UnreadReplies
  readonly keepAlive: KeepAlive
  readonly replayBudget: ReplayBudget
  readonly quotas: Pick<Quotas, 'calls' | 'pendingInputs'>
  /** Translates a server's message for the endpoint; undefined drops the message. */
  readonly inbound: (server: string, message: Message) => Message | undefined
  /** Translates the client's reply to a server's question for that server. */
  readonly outbound: (server: string, message: Message) => Message
}

/** Ends a call of a session early. */
export class CallUnderWay extends Cancellation {
  /** Whether the client has cancelled the call. */
  isTakenBack = false

  takeBack(why: GatewayError): void {
    this.isTakenBack = true
    this.abort(why)
  }
}

/** A client of the legacy era between its `initialize` and its end. */
export class Session implements Caller {
  readonly id: string
  readonly endpoint: Endpoint
  readonly initializeParams: Readonly<Record<string, unknown>>
  readonly headers: SessionParts['headers']
  readonly principal: string
  readonly client: string
  readonly era = 'legacy'
  readonly beganAt: Millis
  /** Whether the session has had any request since its `initialize`. */
  used = false
  /** Calls under way, by the client's ids. */
  readonly inFlight = new Map<RequestId, CallUnderWay>()
  readonly asked: PendingServerRequests
  readonly streams: SessionStreams
  readonly tenants: SessionTenants
  /** Places of calls in which a server asked the agent; created with the first question. */
  #places: Map<CallRecord, SessionCallPlace> | undefined
  readonly #parts: SessionParts
  readonly #changes: Coalescing<string>
  #version: LegacyVersion
  #lastUsed: Millis
  #listening = false

  constructor(parts: SessionParts) {
    this.id = parts.id
    this.endpoint = parts.endpoint
    this.initializeParams = parts.initializeParams
    this.headers = parts.headers
    this.principal = parts.principal
    this.#version = parts.version
    this.client = parts.client
    this.#parts = parts
    this.asked = new PendingServerRequests(parts.outbound)
    this.tenants = new SessionTenants(parts.id)
    this.streams = new SessionStreams(parts.replayBudget, this, {
      unread: (response) => this.wrote(response),
      keepAlive: parts.keepAlive,
    })
    this.#changes = new Coalescing(parts.clock, (text) => this.tell(text))
    this.beganAt = parts.clock.now()
    this.#lastUsed = this.beganAt
  }

  /** Writes comments to quiet replies of this session. */
  get keepAlive(): KeepAlive {
    return this.#parts.keepAlive
  }

  /** The version the client requested, until another version is agreed. */
  get version(): LegacyVersion {
    return this.#version
  }

  /** Stores the version in the answer to `initialize`; an unknown version changes nothing. */
  agreeOn(version: string): void {
    if (isLegacyVersion(version)) this.#version = version
  }

  get listening(): boolean {
    return this.#listening
  }

  /** Whether the client accepts events without data and resumes a stream that ended early. */
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

  /** Records a write that may be too much for the client's connection. */
  wrote(response: ServerResponse): void {
    this.#parts.unread.wrote(response, this)
  }

  /**
   * Starts listening: to everything outside of calls, or to a lost stream. Returns `unknown` for a foreign id and
   * `over` for a stream that ended without an answer. `shift`: how many events later the stream starts.
   */
  listen(
    response: ServerResponse,
    lastEventId: string | undefined,
    shift = 0,
  ): 'listening' | 'over' | 'unknown' {
    const stream = this.streams.attach(response, lastEventId, shift)
    if (stream === 'over') return stream
    if (stream === this.streams.standalone) {
      this.#listening = true
      response.once('close', () => this.touch())
    }
    return stream === undefined ? 'unknown' : 'listening'
  }

  receive(server: string, message: Message, answer?: Answer): void {
    const text = this.textFor(server, message, answer)
    if (text === undefined) return
    if (isListChange(message)) this.#changes.tell(message.value.method as string, text)
    else this.tell(text)
  }

  tell(text: string): void {
    this.streams.standalone.tell(text)
  }

  /**
   * Returns a server's message for the client, if the client gets the message. A request is kept until answered, or
   * until its call ends. A request the client does not get is answered here.
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
      // The asking server is gone: nobody waits for the refusal.
      void answer(errorText(null, METHOD_NOT_FOUND, `Method not found: ${method}`)).catch(ignore)
      return undefined
    }
    if (this.asked.isFull) {
      void answer(errorText(null, INTERNAL_ERROR, 'the client owes too many answers')).catch(ignore)
      return undefined
    }
    if (call === undefined) return this.asked.ask(server, inbound, { answer })
    const full = this.#waits(call)
    if (full === undefined)
      return this.asked.ask(server, inbound, pauseDeadline(call, this.#parts.clock, answer), call)
    void answer(errorText(null, INTERNAL_ERROR, full.message)).catch(ignore)
    return undefined
  }

  /** Marks a call as waiting for the agent. Returns an error when the call may not wait. */
  #waits(call: CallRecord): GatewayError | undefined {
    if (call.asking > 0) return undefined
    const { client, quotas } = this.#parts
    const asked: Asked = { client, tenant: this.tenants.current, session: this.id }
    const full = quotas.pendingInputs.refusal(asked)
    if (full !== undefined || this.#places?.has(call) === true) return full
    this.#places ??= new Map()
    this.#places.set(call, new SessionCallPlace(call, asked, quotas).begin())
    return undefined
  }

  /** Ends a call: nobody waits for answers to its questions. */
  ended(call: CallRecord): void {
    this.asked.end(call)
    const place = this.#places?.get(call)
    if (place === undefined) return
    this.#places?.delete(call)
    place.end()
  }

  close(error: GatewayError = gatewayError('cancelled', 'the session ended')): void {
    for (const call of this.inFlight.values()) call.abort(error)
    this.#changes.end()
    this.streams.endAll()
  }
}

/** The stream number for messages outside of calls. */
const STANDALONE = 0

/** Most remembered streams of a session that ended without an answer. */
const MAX_UNANSWERED = 100

/** The event streams of a session: one for messages outside of calls, and one for each POST that needs a stream. */
class SessionStreams {
  readonly standalone: EventStream
  readonly #log: ReplayLog
  readonly #session: Pick<Session, 'primes'>
  readonly #care: StreamCare
  readonly #open = new Map<number, EventStream>()
  readonly #unanswered = new Set<number>()
  #count = STANDALONE

  /** A session that primes gives its client an id to resume from before a stream's first event. */
  constructor(budget: ReplayBudget, session: Pick<Session, 'primes'>, care: StreamCare) {
    this.#log = new ReplayLog(budget)
    this.#session = session
    this.#care = care
    this.standalone = this.#stream(STANDALONE)
  }

  /** Opens a stream for a POST, from its first message on. */
  open(response: ServerResponse): EventStream {
    const stream = this.#stream(++this.#count)
    this.#open.set(stream.number, stream)
    stream.attach(response, { priming: this.#session.primes })
    return stream
  }

  /** `isAnswered`: false for a stream whose requests were all cancelled. */
  close(stream: EventStream, isAnswered = true): void {
    stream.end()
    this.#open.delete(stream.number)
    if (isAnswered) return
    this.#unanswered.add(stream.number)
    const [oldest] = this.#unanswered
    if (this.#unanswered.size > MAX_UNANSWERED && oldest !== undefined) this.#unanswered.delete(oldest)
  }

  /**
   * Sends a client its lost stream, or without an event id the stream outside of calls. Returns the stream, undefined
   * for a foreign id, or `over` for a stream that ended without an answer. `shift`: how many events later the stream
   * starts.
   */
  attach(
    response: ServerResponse,
    lastEventId: string | undefined,
    shift: number,
  ): EventStream | 'over' | undefined {
    const place =
      lastEventId === undefined ? { stream: STANDALONE, sequence: undefined } : readEventId(lastEventId)
    if (place === undefined || place.stream > this.#count) return undefined
    const live = place.stream === STANDALONE ? this.standalone : this.#open.get(place.stream)
    const isOver =
      this.#unanswered.has(place.stream) && this.#log.after(place.stream, place.sequence ?? 0).length === 0
    if (isOver) return 'over'
    const stream = live ?? this.#stream(place.stream)
    stream.attach(response, { after: place.sequence, priming: this.#session.primes, shift })
    // Events of a finished stream are replayed as far as kept.
    if (live === undefined) stream.end()
    return stream
  }

  endAll(): void {
    for (const stream of this.#open.values()) stream.end()
    this.standalone.end()
    this.#log.close()
  }

  #stream(number: number): EventStream {
    return new EventStream(number, this.#log, this.#care)
  }
}

/** A server's request that the agent has not answered yet. */
interface Question {
  readonly server: string
  /** The server's own id and progress token. */
  readonly id: unknown
  readonly progressToken: unknown
  readonly asking: ServerQuestion
  /** The call that caused the question; undefined outside of calls. */
  readonly call: object | undefined
}

/** Most answers an agent may owe. */
const MAX_OPEN = 1_000

/**
 * The questions of servers to an agent. Servers number their requests independently, so the agent sees Breakwater's
 * ids, which lead its answers back. A question asked during a call ends with the call.
 */
export class PendingServerRequests {
  /** Created with the first question: most of thousands of sessions get none. */
  #open: Map<unknown, Question> | undefined
  /** Breakwater's ids of questions asked during running calls. */
  #byCall: Map<object, Set<string>> | undefined
  #count = 0

  readonly #outbound: SessionParts['outbound']

  /** `outbound` translates the agent's message for a server. */
  constructor(outbound: SessionParts['outbound']) {
    this.#outbound = outbound
  }

  get size(): number {
    return this.#open?.size ?? 0
  }

  /** Whether the agent owes too many answers to get another question. */
  get isFull(): boolean {
    return this.size >= MAX_OPEN
  }

  /** Notes a server's question, and returns its text for the agent: Breakwater's id takes the place of the server's. */
  ask(server: string, request: Message, asking: ServerQuestion, call?: object): string {
    const id = `breakwater-${++this.#count}`
    const meta = paramsOf(request.value)._meta
    const progressToken = isObject(meta) ? meta.progressToken : undefined
    this.#open ??= new Map()
    this.#open.set(id, { server, id: request.value.id, progressToken, asking, call })
    if (call !== undefined) {
      this.#byCall ??= new Map()
      const ids = this.#byCall.get(call)
      if (ids === undefined) this.#byCall.set(call, new Set([id]))
      else ids.add(id)
    }
    const text = replaceAt(request.text, ['id'], id)
    return progressToken === undefined ? text : replaceAt(text, ['params', '_meta', 'progressToken'], id)
  }

  /** Passes the agent's answer to its server. False when no server asked or waits any more. */
  async answer(response: Message): Promise<boolean> {
    const question = this.#take(response.value.id)
    if (question === undefined) return false
    await question.asking.answer(this.#outbound(question.server, response).text)
    return true
  }

  /** Ends a call: nobody waits for answers to its questions. */
  end(call: object): void {
    const ids = this.#byCall?.get(call)
    if (ids === undefined) return
    this.#byCall?.delete(call)
    for (const id of ids) this.#open?.delete(id)
  }

  /** Returns the agent's progress on a question, for the server; undefined when the server asked for no progress. */
  progress(notification: Message): { server: string; text: string } | undefined {
    const question = this.#open?.get(paramsOf(notification.value).progressToken)
    if (question?.progressToken === undefined) return undefined
    const { server, progressToken } = question
    const { text } = this.#outbound(server, notification)
    return { server, text: replaceAt(text, ['params', 'progressToken'], progressToken) }
  }

  /** Withdraws a server's question; the returned text tells the agent, under Breakwater's id. */
  withdraw(server: string, notification: Message): string | undefined {
    const theirs = paramsOf(notification.value).requestId
    if (!isRequestId(theirs)) return undefined
    for (const [id, question] of this.#open ?? []) {
      if (question.server !== server || question.id !== theirs) continue
      this.#take(id)
      question.asking.withdrawn?.()
      return replaceAt(notification.text, ['params', 'requestId'], id)
    }
    return undefined
  }

  /** Looks up an id from the agent, which may be any value. */
  #take(id: unknown): Question | undefined {
    const question = this.#open?.get(id)
    if (question === undefined) return undefined
    this.#open?.delete(id)
    if (question.call !== undefined) this.#byCall?.get(question.call)?.delete(id as string)
    return question
  }
}
