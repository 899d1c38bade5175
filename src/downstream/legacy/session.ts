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
import type { HttpReply } from '../../wire/http-reply.ts'

export interface SessionParts {
  readonly id: string
  readonly endpoint: Endpoint
  /** The params that the client sent with `initialize`. */
  readonly initializeParams: Readonly<Record<string, unknown>>
  /** HTTP headers of the `initialize` request, lower case, without `Authorization`. */
  readonly headers: Readonly<Record<string, string | string[] | undefined>>
  /** Digest of the `initialize` request's `Authorization`; empty without the header. */
  readonly principal: string
  readonly version: LegacyVersion
  /** The name of the client that opened the session, made from its address. */
  readonly client: string
  readonly clock: Clock
  readonly unread: UnreadReplies
  readonly keepAlive: KeepAlive
  readonly replayBudget: ReplayBudget
  readonly quotas: Pick<Quotas, 'calls' | 'pendingInputs'>
  /** Translates a server's message for the endpoint; undefined when the message must not be passed on. */
  readonly inbound: (server: string, message: Message) => Message | undefined
  /** Translates the client's reply to a server's question for that server. */
  readonly outbound: (server: string, message: Message) => Message
}

/** The signal that cancels a call of a session. */
export class CallUnderWay extends Cancellation {
  /** True when the client has cancelled the call. */
  isTakenBack = false

  takeBack(why: GatewayError): void {
    this.isTakenBack = true
    this.abort(why)
  }
}

/** The session of a client of the legacy era, from `initialize` to its end. */
export class Session implements Caller {
  readonly id: string
  readonly endpoint: Endpoint
  readonly initializeParams: Readonly<Record<string, unknown>>
  readonly headers: SessionParts['headers']
  readonly principal: string
  readonly client: string
  readonly era = 'legacy'
  readonly beganAt: Millis
  /** True when the session has had a request since its `initialize`. */
  used = false
  /** Calls in progress, by the client's request ids. */
  readonly inFlight = new Map<RequestId, CallUnderWay>()
  readonly asked: PendingServerRequests
  readonly streams: SessionStreams
  readonly tenants: SessionTenants
  /** The quota places of calls in which a server asked the agent a question; created with the first question. */
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

  /** Sends keep-alive comments to replies without recent writes. */
  get keepAlive(): KeepAlive {
    return this.#parts.keepAlive
  }

  /** The protocol version: the requested version, or the version of the `initialize` answer once known. */
  get version(): LegacyVersion {
    return this.#version
  }

  /** Stores the protocol version of the answer to `initialize`; ignores an unknown version. */
  agreeOn(version: string): void {
    if (isLegacyVersion(version)) this.#version = version
  }

  get listening(): boolean {
    return this.#listening
  }

  /** True when the client accepts events without data, and resumes a stream that ended early. */
  get primes(): boolean {
    return this.version >= '2025-11-25'
  }

  /** Time since the last activity of the session, in milliseconds; 0 while a call or the session's stream is open. */
  get idleMs(): Millis {
    return this.inFlight.size > 0 || this.streams.standalone.attached
      ? 0
      : this.#parts.clock.now() - this.#lastUsed
  }

  touch(): void {
    this.#lastUsed = this.#parts.clock.now()
  }

  /** Tells `UnreadReplies` about a write that the client's connection may not have accepted. */
  wrote(response: HttpReply): void {
    this.#parts.unread.wrote(response, this)
  }

  /**
   * Opens the session's stream for messages outside of calls, or resumes the stream of `lastEventId`. Returns `unknown`
   * for an unknown event id, and `over` for a stream that ended without an answer. `shift`: how many events later the
   * stream starts.
   */
  listen(response: HttpReply, lastEventId: string | undefined, shift = 0): 'listening' | 'over' | 'unknown' {
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
   * Returns the text of a server's message for the client; undefined when the client must not get it. Stores a server's
   * request until the client answers it, or until its call ends. Answers a request that the client must not get with an
   * error.
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
      // Ignores a failure, because the server may be gone.
      void answer(errorText(null, METHOD_NOT_FOUND, `Method not found: ${method}`)).catch(ignore)
      return undefined
    }
    if (this.asked.isFull) {
      void answer(errorText(null, INTERNAL_ERROR, 'the client has too many open questions')).catch(ignore)
      return undefined
    }
    if (call === undefined) return this.asked.ask(server, inbound, { answer })
    const full = this.#waits(call)
    if (full === undefined)
      return this.asked.ask(server, inbound, pauseDeadline(call, this.#parts.clock, answer), call)
    void answer(errorText(null, INTERNAL_ERROR, full.message)).catch(ignore)
    return undefined
  }

  /** Gives a call a place that it releases while it waits for its agent. Returns an error when too many calls wait. */
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

  /** Ends a call: drops its open questions. */
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

/** The number of the stream for messages outside of calls. */
const STANDALONE = 0

/** Most stream numbers stored for streams of a session that ended without an answer. */
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

  /** If `session.primes`, streams send an event id before their first message, so the client can resume. */
  constructor(budget: ReplayBudget, session: Pick<Session, 'primes'>, care: StreamCare) {
    this.#log = new ReplayLog(budget)
    this.#session = session
    this.#care = care
    this.standalone = this.#stream(STANDALONE)
  }

  /** Opens a stream as the reply to a POST. */
  open(response: HttpReply): EventStream {
    const stream = this.#stream(++this.#count)
    this.#open.set(stream.number, stream)
    stream.attach(response, { priming: this.#session.primes })
    return stream
  }

  /** Ends a stream. `isAnswered`: false for a stream whose requests were all cancelled. */
  close(stream: EventStream, isAnswered = true): void {
    stream.end()
    this.#open.delete(stream.number)
    if (isAnswered) return
    this.#unanswered.add(stream.number)
    const [oldest] = this.#unanswered
    if (this.#unanswered.size > MAX_UNANSWERED && oldest !== undefined) this.#unanswered.delete(oldest)
  }

  /**
   * Resumes the stream of an event id on a connection; without an event id, sends the stream for messages outside of
   * calls. Returns the stream, undefined for an unknown event id, or `over` for a stream that ended without an answer.
   * `shift`: how many events later the stream starts.
   */
  attach(
    response: HttpReply,
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
    // If the stream has finished, replays the events that the log still has, and ends the stream again.
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
  /** The id and the progress token that the server chose. */
  readonly id: unknown
  readonly progressToken: unknown
  readonly asking: ServerQuestion
  /** The call that caused the question; undefined outside of calls. */
  readonly call: object | undefined
}

/** Most unanswered questions of an agent. */
const MAX_OPEN = 1_000

/**
 * The open questions of servers to an agent. Ids of different servers may be equal, so the agent gets ids made by
 * Breakwater; each id leads to the server and its own id. A question asked during a call ends with the call.
 */
export class PendingServerRequests {
  /** The open questions by Breakwater's id; created with the first question, because most sessions get none. */
  #open: Map<unknown, Question> | undefined
  /** Breakwater's ids of the open questions of each running call. */
  #byCall: Map<object, Set<string>> | undefined
  #count = 0

  readonly #outbound: SessionParts['outbound']

  /** `outbound` translates the agent's answer for a server. */
  constructor(outbound: SessionParts['outbound']) {
    this.#outbound = outbound
  }

  get size(): number {
    return this.#open?.size ?? 0
  }

  /** True when the agent has too many unanswered questions to get another. */
  get isFull(): boolean {
    return this.size >= MAX_OPEN
  }

  /** Stores a server's question. Returns its text for the agent, with Breakwater's id in place of the server's id. */
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

  /** Passes the agent's answer to its server. Resolves to false when no question has this id any more. */
  async answer(response: Message): Promise<boolean> {
    const question = this.#take(response.value.id)
    if (question === undefined) return false
    await question.asking.answer(this.#outbound(question.server, response).text)
    return true
  }

  /** Ends a call: drops its open questions. */
  end(call: object): void {
    const ids = this.#byCall?.get(call)
    if (ids === undefined) return
    this.#byCall?.delete(call)
    for (const id of ids) this.#open?.delete(id)
  }

  /**
   * Returns the agent's progress notification with the server's progress token; undefined when the server asked for no
   * progress.
   */
  progress(notification: Message): { server: string; text: string } | undefined {
    const question = this.#open?.get(paramsOf(notification.value).progressToken)
    if (question?.progressToken === undefined) return undefined
    const { server, progressToken } = question
    const { text } = this.#outbound(server, notification)
    return { server, text: replaceAt(text, ['params', 'progressToken'], progressToken) }
  }

  /** Drops a question that its server has cancelled. Returns the cancellation for the agent, with Breakwater's id. */
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

  /** Removes and returns the question with an id from the agent; the id may be any value. */
  #take(id: unknown): Question | undefined {
    const question = this.#open?.get(id)
    if (question === undefined) return undefined
    this.#open?.delete(id)
    if (question.call !== undefined) this.#byCall?.get(question.call)?.delete(id as string)
    return question
  }
}
