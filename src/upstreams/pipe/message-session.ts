import type { Answer, Call, Caller, Message, Outcome, Service } from '../../mesh/call.ts'
import { never, type Signal } from '../../mesh/cancel.ts'
import { verdictOf } from '../../mesh/classify.ts'
import { gatewayError, type GatewayError } from '../../mesh/errors.ts'
import { ownTurn, TurnBudget } from '../../mesh/turns.ts'
import { during, LARGE_TEXT } from '../../mesh/work.ts'
import { sizeFault } from '../../protocol/json-parse.ts'
import { elements } from '../../protocol/json-span.ts'
import {
  errorText,
  INTERNAL_ERROR,
  isObject,
  kindOf,
  notificationText,
  paramsOf,
  parseJson,
  readMessage,
  resultText,
} from '../../protocol/jsonrpc.ts'
import { type Era, SUBSCRIPTION_ID_KEY } from '../../protocol/versions.ts'
import { endsOf, type Overlong, repliedId } from '../../protocol/overlong.ts'
import { LogThrottle } from '../../telemetry/log-throttle.ts'
import { abortError, failure, orAborted } from '../failure.ts'
import type { Discover } from '../modern/discover.ts'
import { ownCall } from '../own-call.ts'
import { Skipped } from '../skipped.ts'
import type { Refusal, Respondent } from '../shared/audience.ts'
import type { UpstreamSession } from '../upstream.ts'
import { MAX_BACKLOG_BYTES, MAX_BACKLOG_MESSAGES } from './backlog.ts'
import { greet, type Initialized, openError } from './handshake.ts'
import { InFlight, type InFlightCall } from './in-flight.ts'
import type { Connect, Pipe, PipeEvents, Posting, Terms } from './pipe.ts'
import {
  answerableId,
  progressToCaller,
  rawAt,
  replyToCaller,
  toServer,
  withRawId,
} from '../../protocol/renumber.ts'

/** Most notifications waiting for the server; calls are limited elsewhere. */
const MAX_UNREAD = 1_024

/** How long a server may take to accept `notifications/initialized`, in milliseconds: some never acknowledge. */
const INITIALIZED_MS = 1_000

/** Notifications reserved for the gateway, which does the handshake and assigns request ids. */
const ours: ReadonlySet<unknown> = new Set(['notifications/initialized', 'notifications/cancelled'])

/** Requests that are never cancelled: before its first answer, a server may not understand a cancellation. */
const handshakeMethods: ReadonlySet<string> = new Set(['initialize', 'server/discover'])

/** Ends a call whose client does not read, when other callers must not wait. */
const readsTooSlowly = gatewayError(
  'overloaded',
  `the client reads too slowly: more than ${MAX_BACKLOG_BYTES} bytes or ${MAX_BACKLOG_MESSAGES} messages of the server wait ahead of the answer`,
  { sent: true },
)

/** An upstream session over a pipe of JSON texts. Requests get ids and progress tokens of the gateway. */
export class MessageSession implements UpstreamSession {
  readonly keepsState = true
  readonly #terms: Terms
  readonly #calls: InFlight
  readonly #requests = new ServerRequests((text) => this.#send(text))
  readonly #end = new AbortController()
  #pipe: Pipe | undefined
  #initialized!: Initialized
  #unread = 0
  #isConfirming = false

  /** Connects and performs the handshake. Rejects with a `GatewayError` after cleaning up. */
  static async open(connect: Connect, terms: Terms, signal: Signal): Promise<MessageSession> {
    if (signal.aborted) throw abortError(signal)
    const upstreamSession = new MessageSession(terms)
    const inbox = new Inbox(upstreamSession.#calls, upstreamSession.#requests, terms, (error) =>
      upstreamSession.#over(error),
    )
    try {
      upstreamSession.#pipe = await connect(inbox, signal)
      await upstreamSession.#greet(signal)
    } catch (error) {
      void upstreamSession.close()
      throw openError(error)
    }
    return upstreamSession
  }

  private constructor(terms: Terms) {
    this.#terms = terms
    const { server, shared = false, clock } = terms
    const overflow = (entry: InFlightCall) => this.#giveUp(entry, readsTooSlowly)
    this.#calls = new InFlight({ server, shared, clock, overflow })
  }

  async #greet(signal: Signal): Promise<void> {
    const { faults } = this.#terms
    const exchange: Service = (call) => this.exchange(call)
    this.#initialized = await greet(faults?.(exchange) ?? exchange, this.#terms, signal)
    if (this.discover === undefined) {
      const taken = this.#send(notificationText('notifications/initialized'))
      await orAborted(Promise.race([taken, this.#terms.clock.sleep(INITIALIZED_MS, signal)]), signal)
    }
    if (this.ended.aborted) throw this.ended.reason
  }

  get initializeResult(): Message {
    return this.#initialized.initializeResult
  }

  get era(): Era {
    return this.discover === undefined ? 'legacy' : 'modern'
  }

  /** Asks a modern server about itself; undefined in the legacy era. */
  get discover(): Discover | undefined {
    return this.#initialized.discover
  }

  get hasWorked(): boolean {
    return this.#calls.hasWorked
  }

  get ended(): AbortSignal {
    return this.#end.signal
  }

  exchange(call: Call): Promise<Outcome> {
    const { signal, headers, record } = call
    const over = this.ended.aborted ? (this.ended.reason as GatewayError) : undefined
    const error = over ?? (signal.aborted ? abortError(signal) : undefined)
    if (error !== undefined) return Promise.resolve(failure(call, error))
    const refused = this.#terms.audience.refusal?.(call)
    if (refused !== undefined) return Promise.resolve(refused)
    return new Promise((resolve) => {
      const entry = this.#calls.add(call, resolve, this.#aborted)
      if (call.wire?.answer !== undefined) entry.unshape = this.#pipe?.shape(entry.id, call.wire.answer)
      const onWrite = () => {
        entry.written = true
        record.sent = true
        call.onSent?.()
      }
      this.#send(toServer(call, entry.id), { signal, headers, onWrite }).catch((cause: GatewayError) => {
        this.#calls.settle(entry, failure(call, cause))
      })
    })
  }

  /**
   * Passes a caller's notification or answer to the server. `from`: the caller, when callers share the upstream
   * session.
   */
  async post(text: string, from?: Caller): Promise<void> {
    if (this.ended.aborted) throw this.ended.reason
    const message = readMessage(text)
    if (message === undefined || ours.has(message.value.method)) return
    if (kindOf(message.value) === 'response') return this.#requests.reply(message, from)
    if (this.#unread >= MAX_UNREAD) {
      throw gatewayError(
        'overloaded',
        `the server reads too slowly (${MAX_UNREAD} notifications wait for it)`,
      )
    }
    this.#unread++
    await this.#send(text, { oneWay: 'notification' }).finally(() => this.#unread--)
  }

  /** Does nothing: a pipe carries every message anyway. */
  listen(): void {}

  async close(): Promise<void> {
    this.#over(gatewayError('cancelled', 'the upstream session was closed'))
    await this.#pipe?.close()
  }

  /** Ends all work for a caller; the upstream session stays open for the other callers. */
  abandon(caller: Caller, error: GatewayError): void {
    for (const entry of this.#calls.of(caller)) this.#giveUp(entry, error)
    this.#calls.left(caller)
    this.#terms.audience.left?.(caller)
    this.#requests.abandon(caller)
  }

  readonly #aborted = (entry: InFlightCall): void => this.#giveUp(entry, abortError(entry.call.signal))

  /** Settles an abandoned call and sends the server a cancellation. */
  #giveUp(entry: InFlightCall, error: GatewayError): void {
    const isDone = this.#calls.isAnswered(entry)
    this.#calls.settle(entry, failure(entry.call, error))
    if (isDone || !entry.written || handshakeMethods.has(entry.call.method)) return
    const matters = this.#calls.abandon(entry)
    const params = { requestId: entry.id, reason: error.message }
    const text = notificationText('notifications/cancelled', params)
    const sent = () => {
      if (!matters) return
      this.#calls.cancellationSent(entry)
      void this.#confirm()
    }
    this.#send(text, { oneWay: 'cancellation' }).then(sent, (cause: GatewayError) => {
      this.#terms.log.debug({ reason: cause.reason }, 'could not tell the server of a cancellation')
    })
  }

  /** Pings until the server has read all cancellations. A hanging server gets a single ping. */
  async #confirm(): Promise<void> {
    if (this.#isConfirming) return
    this.#isConfirming = true
    let isAnswered = true
    while (isAnswered && this.#calls.abandoned.isUnread) isAnswered = await this.#isThere()
    this.#isConfirming = false
  }

  /** Whether the server answers a ping. */
  async #isThere(): Promise<boolean> {
    if (this.discover !== undefined)
      return this.discover.renew(never).then(
        () => true,
        () => false,
      )
    return (await this.exchange(ownCall(this.#terms.server, 'ping', {}, never))).kind === 'answered'
  }

  #send(text: string, posting?: Posting): Promise<void> {
    return (
      this.#pipe?.send(text, posting) ??
      Promise.reject(gatewayError('upstream_unavailable', 'not connected yet'))
    )
  }

  #over(error: GatewayError): void {
    if (this.ended.aborted) return
    this.#end.abort(error)
    for (const entry of this.#calls.of()) this.#calls.settle(entry, failure(entry.call, error))
  }
}

/** Interval of the log about oversized messages: at most one entry per interval, in milliseconds. */
const NOISE_EVERY_MS = 60_000

/** Some programs begin their output with this mark. */
const BYTE_ORDER_MARK = '\ufeff'

/** How many opening braces of a line are tried as the start of an answer behind a banner. */
const MOST_BANNER_BRACES = 16

/**
 * Matches the start of a text that is meant as an answer: the outcome first, or JSON-RPC without a method before the
 * outcome.
 */
const meantAsAnswer =
  /^\s*\{(?:\s*"(?:result|error)"\s*:\s*\{|(?=[^]*["']jsonrpc["'])(?:(?!["']method["'])[^])*?["'](?:result|error)["']\s*:)/

/** Routes messages of a server: answers and progress to their calls, the rest to the audience. */
class Inbox implements PipeEvents {
  readonly #calls: InFlight
  readonly #requests: ServerRequests
  readonly #terms: Terms
  readonly #skipped: Skipped
  readonly #tooLarge: LogThrottle
  readonly closed: (error: GatewayError) => void

  constructor(
    calls: InFlight,
    requests: ServerRequests,
    terms: Terms,
    closed: (error: GatewayError) => void,
  ) {
    this.#calls = calls
    this.#requests = requests
    this.#terms = terms
    this.#skipped = new Skipped(terms.clock, terms.log)
    this.#tooLarge = new LogThrottle(terms.clock, 1, NOISE_EVERY_MS)
    this.closed = closed
  }

  message(text: string): Promise<void> | undefined {
    if (text.length < LARGE_TEXT) return this.#message(text)
    return ownTurn(this.#terms.server).then(() => during('reply', () => this.#large(text)))
  }

  #large(text: string): Promise<void> | undefined {
    const fault = sizeFault(text)
    if (fault === undefined) return this.#message(text)
    return this.#throwAway(repliedId(endsOf(text)), gatewayError('bad_reply', fault, { sent: true }))
  }

  #message(text: string): Promise<void> | undefined {
    const value = parseJson(text)
    if (Array.isArray(value)) return this.#batch(text)
    if (!isObject(value)) return this.#unreadable(text)
    const message: Message = { text, value }
    switch (kindOf(value)) {
      case 'response':
        return this.#response(message)
      case 'request':
        return this.#request(message)
      case 'notification':
        return this.#notification(message)
      default:
        return this.#malformed(message)
    }
  }

  overlong(id: number | undefined, limit: number): void {
    const error = gatewayError('reply_too_large', `the reply is larger than ${limit} bytes`, { sent: true })
    this.#throwAway(id, error)
  }

  /** Discards an unread message; `id`: the id of the answered request, if the ends of the message show an id. */
  #throwAway(id: number | undefined, error: GatewayError): undefined {
    const entry = this.#calls.get(id)
    this.#calls.finished(id)
    if (entry !== undefined) return void this.#calls.settle(entry, failure(entry.call, error))
    this.#tooLarge.admit((dropped) =>
      this.#terms.log.warn({ why: error.message, dropped }, 'dropped a message over the size limit'),
    )
  }

  /** Version 2025-03-26 has batches. Handles the messages of a batch in order. */
  async #batch(text: string): Promise<void> {
    const turns = new TurnBudget()
    for (const { start, end } of elements(text, text.indexOf('['))) {
      turns.begin()
      await this.message(text.slice(start, end))
      if (turns.spent(end - start)) await ownTurn(this.#terms.server)
    }
  }

  #response(message: Message): undefined {
    const entry = this.#calls.get(message.value.id)
    if (entry !== undefined) return void this.#answered(entry, message)
    const late = this.#calls.finished(message.value.id)
    // A task created by a late answer still belongs to the caller.
    if (late?.caller !== undefined) this.#terms.audience.answered?.(late.method, late.caller, message)
    return this.#discard('an answer without a waiting call', message)
  }

  #answered(entry: InFlightCall, message: Message): void {
    const { audience } = this.#terms
    const { method, caller } = entry.call
    this.#calls.heard(entry, message)
    const { text, value } =
      audience.answered === undefined ? message : audience.answered(method, caller, message)
    const result = replyToCaller(entry.call, { text, value, status: 200 })
    this.#calls.answer(entry, { kind: 'answered', result, verdict: verdictOf(result.value) })
  }

  #request(message: Message): Promise<void> | undefined {
    if (message.value.method !== 'ping') {
      return this.#requests.ask(message, this.#terms.audience.respondent(message, this.#calls))
    }
    this.#requests.answer(message, resultText(0, '{}'))
    return undefined
  }

  #notification(message: Message): Promise<void> | undefined {
    switch (message.value.method) {
      case 'notifications/progress':
        return this.#progress(message)
      case 'notifications/cancelled':
        return this.#requests.cancelled(message)
      default:
        return this.#told(message)
    }
  }

  /** Passes on a notification. In the modern era, most notifications name their subscription. */
  #told(message: Message): Promise<void> | undefined {
    const { _meta } = paramsOf(message.value)
    const id = isObject(_meta) ? _meta[SUBSCRIPTION_ID_KEY] : undefined
    const entry = id === undefined ? undefined : this.#calls.get(id)
    if (entry !== undefined) return this.#calls.through(entry, message)
    return this.#terms.audience.notify(message, this.#calls)
  }

  #progress(message: Message): Promise<void> | undefined {
    const { progressToken } = paramsOf(message.value)
    const entry = this.#calls.get(progressToken)
    const progress = entry && progressToCaller(entry.call, message)
    if (progress !== undefined) return this.#calls.through(entry as InFlightCall, progress)
    if (this.#calls.progressOfTask(progressToken, message)) return undefined
    this.#calls.goesOn(progressToken)
    return this.#discard('progress that nobody asked for', message)
  }

  /** Handles JSON that is no JSON-RPC message. If it has the id of a call, the call ends with an error. */
  #malformed(message: Message): Promise<void> | undefined {
    const entry = 'method' in message.value ? undefined : this.#calls.get(message.value.id)
    if (entry === undefined) return this.#unreadable(message.text)
    const error = gatewayError('bad_reply', 'the reply is not a JSON-RPC response', { sent: true })
    return void this.#calls.settle(entry, failure(entry.call, error))
  }

  #unreadable(text: string): Promise<void> | undefined {
    if (text.trim() === '') return undefined
    if (text.startsWith(BYTE_ORDER_MARK)) return this.#message(text.slice(1))
    const first = this.#behindBanner(text)
    if (first !== undefined) return this.#response(first)
    const entry = this.#meantFor(endsOf(text))
    if (entry !== undefined) {
      const error = gatewayError('bad_reply', sizeFault(text) ?? 'the reply is not JSON', { sent: true })
      this.#calls.settle(entry, failure(entry.call, error))
    }
    this.#skipped.add(text, this.#terms.conceal)
    return undefined
  }

  /** Returns the answer to a handshake in a line that begins with a banner; undefined without such an answer. */
  #behindBanner(text: string): Message | undefined {
    if (text.length >= LARGE_TEXT) return undefined
    let at = text.indexOf('{')
    for (let tries = 0; at !== -1 && tries < MOST_BANNER_BRACES; tries++, at = text.indexOf('{', at + 1)) {
      const message = readMessage(text.slice(at))
      if (message === undefined || kindOf(message.value) !== 'response') continue
      // Handshakes only: later, anybody able to make a server print text could forge answers for other callers.
      const entry = this.#calls.get(message.value.id)
      if (entry !== undefined && handshakeMethods.has(entry.call.method)) return message
    }
    return undefined
  }

  /**
   * Returns the call that a text of broken JSON is meant to answer: the call with the id in the text, otherwise the
   * only call.
   */
  #meantFor(ends: Overlong): InFlightCall | undefined {
    if (!/^\s*\{/.test(ends.head)) return undefined
    const id = repliedId(ends)
    if (id !== undefined) return this.#calls.get(id)
    return meantAsAnswer.test(ends.head) ? this.#calls.only : undefined
  }

  #discard(what: string, { value }: Message): undefined {
    this.#terms.log.debug({ id: value.id, method: value.method }, `discarded ${what}`)
  }
}

/** Most open requests of a server, and most answers of the gateway waiting for the server. */
const MAX_OPEN = 1_024

interface Open extends Respondent {
  readonly answer: Answer
}

/** The server's open requests and their respondents. Each request gets exactly one answer. */
class ServerRequests {
  readonly #send: (text: string) => Promise<void>
  /** By the exact text of the server's id. */
  readonly #open = new Map<string, Open>()
  #unread = 0

  constructor(send: (text: string) => Promise<void>) {
    this.#send = send
  }

  /** Passes a request to its respondent, or answers with a refusal. */
  ask(request: Message, respondent: Respondent | Refusal): Promise<void> | undefined {
    if ('code' in respondent) return this.refuse(request, respondent)
    if (this.#open.size >= MAX_OPEN) {
      return this.refuse(request, {
        code: INTERNAL_ERROR,
        message: `too many open requests (limit ${MAX_OPEN})`,
      })
    }
    const id = answerableId(request)
    if (id === undefined) return undefined
    const answer: Answer = (text) => {
      if (this.#open.get(id) !== open) return Promise.resolve()
      this.#open.delete(id)
      return this.#send(withRawId(text, id))
    }
    const open: Open = { ...respondent, answer }
    this.#open.set(id, open)
    return respondent.deliver(request, answer)
  }

  refuse(request: Message, refusal: Refusal): undefined {
    this.answer(request, errorText(null, refusal.code, refusal.message))
  }

  /**
   * Answers a request for the gateway, without waiting until the server reads: a server may have to write before it can
   * read. Drops answers beyond `MAX_OPEN`.
   */
  answer(request: Message, text: string): void {
    const id = answerableId(request)
    if (id !== undefined) this.#answer(id, text)
  }

  #answer(id: string, text: string): void {
    if (this.#unread >= MAX_OPEN) return
    this.#unread++
    const settled = () => void this.#unread--
    this.#send(withRawId(text, id)).then(settled, settled)
  }

  /** Passes on a response under the server's id, if the sender was asked. */
  async reply(response: Message, from?: Caller): Promise<void> {
    const open = this.#open.get(rawAt(response.text, ['id']))
    if (open !== undefined && (from === undefined || open.caller === from)) await open.answer(response.text)
  }

  /** Tells the respondent about a cancelled request. */
  cancelled(notification: Message): Promise<void> | undefined {
    const id = rawAt(notification.text, ['params', 'requestId'])
    const open = this.#open.get(id)
    this.#open.delete(id)
    return open?.deliver(notification)
  }

  /** Answers the open requests to a departed caller with an error. */
  abandon(caller: Caller): void {
    for (const [id, open] of this.#open) {
      if (open.caller !== caller) continue
      this.#open.delete(id)
      this.#answer(id, errorText(null, INTERNAL_ERROR, 'the client has left'))
    }
  }
}
