import type { Channel, Layer, Message } from '../../mesh/call.ts'
import { Cancellation, ignore, type Signal } from '../../mesh/cancel.ts'
import type { Millis } from '../../mesh/clock.ts'
import { gatewayError, type GatewayError } from '../../mesh/errors.ts'
import { isObject, notificationText, requestText } from '../../protocol/jsonrpc.ts'
import { locate } from '../../protocol/json-span.ts'
import { LATEST_LEGACY } from '../../protocol/versions.ts'
import { orAborted, within } from '../failure.ts'
import { assertLegacy, initializeResultOf, refusedBy, ownCall } from '../own-call.ts'
import type { Conceal } from '../server-words.ts'
import { SharedAttempts } from '../shared-attempts.ts'
import { HttpExchange, UnderWay, type ExchangeOptions } from './http-exchange.ts'
import type { ReplyHeaders, Reading } from './http-status.ts'
import { leave, postAway } from './http-post.ts'
import type { HttpWire } from './http-wire.ts'
import type { SessionState } from '../shared/session-state.ts'

/** Terms shared by all sessions with one endpoint. */
export interface HttpSessionTerms {
  readonly server: string
  /** Time limit of a whole handshake, in milliseconds, independent of the callers that wait for it. */
  readonly handshakeMs: Millis
  /** Called when the gateway ends a session at the server; the promise resolves once the server was told. */
  readonly onFarewell: (farewell: Promise<void>) => void
  /** Returns an equal `initialize` result that is already in memory; otherwise the given result. */
  readonly shared: (initializeResult: Message) => Message
  readonly checks: SessionChecks
  /** Faults of handshakes and pings; optional. */
  readonly faults?: Layer | undefined
}

/** The owner of a session: says how to send requests, and takes all messages of the server during requests. */
export interface HttpSessionOwner extends ExchangeOptions, Channel {
  readonly initializeParams: Readonly<Record<string, unknown>>
  /** The caller's subscriptions and log level, which the server keeps. */
  readonly state: SessionState
  /** Whether the caller gets an error after a lost session, instead of a new session. */
  readonly surfaces: boolean
  /** Aborted once nobody needs the session. */
  readonly ended: Signal
  /** Whether a call was answered in the session of `wire`. */
  hasAnswered(wire: HttpWire): boolean
  reopened(): void
}

/** Whether the server knows a session; `unclear` when it gave no clear answer, or answers alike for every session. */
export type SessionFate = 'known' | 'forgotten' | 'unclear'

/** How long to wait for the acknowledgement of `notifications/initialized`: some servers give none. */
const INITIALIZED_MS: Millis = 1_000

/** How long the server may take to say whether a session is known, in milliseconds. */
const PING_MS: Millis = 5_000

/**
 * How long a "known" answer is believed, in milliseconds: a tool may fail in every call with an error that looks like a
 * lost session.
 */
const KNOWN_MS: Millis = 1_000

/** Least interval between checks of one session, in milliseconds. */
const CHECK_EVERY_MS: Millis = 5_000

/** How often a check asks in both sessions: detects servers that refuse requests now and then in any session. */
const CHECK_ROUNDS = 3

/** Most checks at one endpoint in a row, and the interval until a further check is allowed, in milliseconds. */
const MOST_CHECKS = 16
const ONE_CHECK_MORE_MS: Millis = 500

/** Limits how often the sessions with an endpoint are checked. */
export class SessionChecks {
  /** When all checks in a row are allowed again, on the monotonic clock. */
  #wholeAt: Millis = -Infinity

  /** Counts a check; returns false after too many checks. */
  take(now: Millis): boolean {
    const wholeAt = Math.max(now, this.#wholeAt) + ONE_CHECK_MORE_MS
    if (wholeAt - now > MOST_CHECKS * ONE_CHECK_MORE_MS) return false
    this.#wholeAt = wholeAt
    return true
  }

  /**
   * Removes a check that found a lost session from the count: a restarted server may have forgotten thousands of
   * sessions.
   */
  giveBack(): void {
    this.#wholeAt -= ONE_CHECK_MORE_MS
  }
}

/** After so many reopened sessions in a row without an answer, one session opens per interval, in milliseconds. */
const MOST_IN_VAIN = 3
const IN_VAIN_EVERY_MS: Millis = 1_000

/** How long to wait for the answer to an abandoned `initialize`, in order to end its session, in milliseconds. */
const LATE_MS: Millis = 1_000

/**
 * A session at a server, reopened when forgotten. Each session has its own wire, so a call knows the session in which
 * it was sent.
 */
export class HttpSession {
  readonly #terms: HttpSessionTerms
  readonly #owner: HttpSessionOwner
  readonly #unopened: HttpWire
  #wire: HttpWire
  #initializeResult: Message = { text: '{}', value: {} }
  #lost = false
  #requests = 0
  /** Reopens the session; created on demand, because most sessions are never lost. */
  #reopening: SharedAttempts<void> | undefined
  /** Asks whether the server still knows the current session; created on demand. */
  #asking: SharedAttempts<'known' | 'forgotten'> | undefined
  /** When the server last confirmed the current session, on the monotonic clock. */
  #knownAt: Millis = -Infinity
  /** A check under way, and when the next check may begin, on the monotonic clock. */
  #checking: Promise<void> | undefined
  #nextCheckAt: Millis = -Infinity
  /** Reopen attempts in a row since the last answered call, and the start of the latest, on the monotonic clock. */
  #inVain = 0
  #attemptedAt: Millis = -Infinity
  /** Replaced sessions that the server may still know. */
  #unclear: WeakSet<HttpWire> | undefined

  constructor(terms: HttpSessionTerms, owner: HttpSessionOwner, wire: HttpWire) {
    this.#terms = terms
    this.#owner = owner
    this.#unopened = wire
    this.#wire = wire
  }

  get initializeResult(): Message {
    return this.#initializeResult
  }

  get wire(): HttpWire {
    return this.#wire
  }

  /** Whether the server has certainly forgotten the session: nothing is sent before the session is reopened. */
  get lost(): boolean {
    return this.#lost
  }

  /** Continues under an invented session id, so the server itself reports an unknown session. */
  forge(sessionId: string): void {
    // Calls under way in the real session may finish.
    this.#isUnclear(this.#wire)
    this.#wire = this.#wire.inSession(sessionId, versionOf(this.#initializeResult))
  }

  /** Performs the handshake and restores all state requested by the caller. Rejects with a `GatewayError`. */
  async open(signal: Signal): Promise<void> {
    this.#adopt(await this.#handshake(signal))
  }

  #isUnclear(wire: HttpWire): void {
    this.#unclear ??= new WeakSet()
    this.#unclear.add(wire)
  }

  #adopt({ initializeResult, wire }: Opened): void {
    this.#initializeResult = this.#terms.shared(initializeResult)
    this.#wire = wire
    this.#knownAt = -Infinity
  }

  async #handshake(signal: Signal): Promise<Opened> {
    const { state, clock, ackMs: limitMs } = this.#owner
    const { initializeResult, wire } = await this.#initialize(signal)
    const initialized = notificationText('notifications/initialized')
    try {
      const taken = postAway(wire, initialized, { clock, limitMs, signal })
      await orAborted(Promise.race([taken, clock.sleep(INITIALIZED_MS, signal)]), signal)
      for (const { method, params } of state.requests()) await this.#request(wire, method, params, signal)
    } catch (error) {
      if (wire.sessionId !== undefined) this.#terms.onFarewell(leave(wire, clock, LATE_MS))
      throw error
    }
    return { initializeResult, wire }
  }

  /**
   * Resolves to whether the server knows the session of `used`. All simultaneous callers share one ping. Never rejects.
   */
  fateOf(used: HttpWire): Promise<SessionFate> {
    if (used !== this.#wire)
      return Promise.resolve(this.#unclear?.has(used) === true ? 'unclear' : 'forgotten')
    if (this.#lost) return Promise.resolve('forgotten')
    if (this.#owner.clock.now() - this.#knownAt < KNOWN_MS) return Promise.resolve('known')
    this.#asking ??= new SharedAttempts(this.#owner.clock, (end) => this.#ask(end))
    return this.#asking.join().catch(unclear)
  }

  /**
   * Checks the session of `used` after an ambiguous reply, with a test request in this session and in a new session. If
   * the server refuses the request only in the old session, the new session replaces it. The test request asks for a
   * list if the server offers lists, because many servers answer pings in unknown sessions. Returns undefined when no
   * check is under way or due. The promise never rejects.
   */
  check(used: HttpWire): Promise<void> | undefined {
    if (used !== this.#wire || this.#lost) return undefined
    return this.#checking ?? this.#beginCheck()
  }

  get #question(): Question {
    const { capabilities } = this.#initializeResult.value
    return questions.find(([offer]) => isObject(capabilities) && isObject(capabilities[offer]))?.[1] ?? 'ping'
  }

  #beginCheck(): Promise<void> | undefined {
    const { handshakeMs, checks } = this.#terms
    const { clock, ended } = this.#owner
    const now = clock.now()
    if (now < this.#nextCheckAt || ended.aborted || !checks.take(now)) return undefined
    this.#nextCheckAt = now + CHECK_EVERY_MS
    const used = this.#wire
    const checking = within(handshakeMs, clock, ended, (limit) => this.#replaceIfLost(used, limit))
    return (this.#checking = checking.catch(ignore).finally(() => (this.#checking = undefined)))
  }

  /** Replaces the session of `used` if the server has forgotten it. Rejects when the server gives no clear answer. */
  async #replaceIfLost(used: HttpWire, limit: Signal): Promise<void> {
    const question = this.#question
    const isKnown = async (wire: HttpWire) => (await this.#askIn(wire, question, limit)) === 'known'
    if (await isKnown(used)) return
    const opened = await this.#handshake(limit)
    const isLost = await isOnly(opened.wire, used, isKnown).catch(() => false)
    const isNeeded = isLost && used === this.#wire && !limit.aborted
    if (isLost) this.#terms.checks.giveBack()
    if (isNeeded && !this.#owner.surfaces) return this.#goOnIn(opened)
    if (isNeeded) this.#lost = true
    this.#terms.onFarewell(leave(opened.wire, this.#owner.clock, LATE_MS))
  }

  close(reason: GatewayError): void {
    this.#reopening?.abort(reason)
    this.#asking?.abort(reason)
  }

  /** Reopens a lost session, once for all callers. Rejects with a `GatewayError`. */
  reopen(): Promise<void> {
    if (!this.#lost) return Promise.resolve()
    this.#reopening ??= new SharedAttempts(this.#owner.clock, (end) => this.#openAgain(end))
    return this.#reopening.join()
  }

  async #openAgain(end: Signal): Promise<void> {
    const { handshakeMs, onFarewell } = this.#terms
    const { clock } = this.#owner
    const lost = this.#wire
    await this.#untilDue(lost, end)
    const { opened, fate } = await within(handshakeMs, clock, end, async (limit) => {
      const opened = await this.#handshake(limit)
      return { opened, fate: await this.#askIn(opened.wire, 'ping', limit).catch(unclear) }
    })
    // Another attempt was faster, or nobody wants the session any more.
    if (!this.#lost || end.aborted) return void onFarewell(leave(opened.wire, clock, LATE_MS))
    // If the server refuses a ping in the new session too, its earlier refusal of a ping did not prove that the old
    // session was lost.
    if (fate !== 'known') this.#isUnclear(lost)
    this.#goOnIn(opened)
  }

  /** Waits until `lost` may be reopened, to spare a server that forgets each session at once. */
  async #untilDue(lost: HttpWire, end: Signal): Promise<void> {
    const { clock } = this.#owner
    if (this.#owner.hasAnswered(lost)) this.#inVain = 0
    const pauseMs = this.#attemptedAt + IN_VAIN_EVERY_MS - clock.now()
    if (this.#inVain >= MOST_IN_VAIN && pauseMs > 0) await orAborted(clock.sleep(pauseMs, end), end)
    this.#inVain++
    this.#attemptedAt = clock.now()
  }

  #goOnIn(opened: Opened): void {
    this.#adopt(opened)
    this.#lost = false
    this.#owner.reopened()
  }

  /** Asks about the current session. Rejects when the answer is unclear. */
  async #ask(end: Signal): Promise<'known' | 'forgotten'> {
    const asked = this.#wire
    const fate = await within(PING_MS, this.#owner.clock, end, (limit) => this.#askIn(asked, 'ping', limit))
    if (fate === 'refused')
      throw gatewayError('upstream_refused', 'the server refuses a ping', { sent: true })
    if (asked !== this.#wire) return fate
    if (fate === 'known') this.#knownAt = this.#owner.clock.now()
    else this.#lost = true
    return fate
  }

  /** Opens a session; an abandoned attempt leaves no session at the server. */
  async #initialize(signal: Signal): Promise<Opened> {
    const { onFarewell } = this.#terms
    const { initializeParams, clock, maxReply, unfinished, ackMs, unread, skipped, onVersionError } =
      this.#owner
    const wire = this.#unopened
    const end = new Cancellation()
    let head: ReplyHeaders | undefined
    const onHeaders = (headers: ReplyHeaders) => (head = headers)
    // Separate from the other exchanges, so that the end of the upstream session does not abort this request: only its
    // answer names the session to end.
    const underWay = new UnderWay()
    const own = { clock, maxReply, unfinished, ackMs, unread, skipped, onVersionError, onHeaders, underWay }
    const answer = this.#ownRequest(wire, 'initialize', initializeParams, end, own).then((reading) => {
      const sessionId = sessionIn(head)
      try {
        const initializeResult = initializeResultIn(reading, (text) => wire.concealing()(text))
        return { initializeResult, wire: wire.inSession(sessionId, versionOf(initializeResult)) }
      } catch (error) {
        // Ends a session whose `initialize` result is unusable.
        if (sessionId !== undefined)
          onFarewell(leave(wire.inSession(sessionId, LATEST_LEGACY), clock, LATE_MS))
        throw error
      }
    })
    try {
      return await orAborted(answer, signal)
    } catch (error) {
      if (!signal.aborted) throw error
      const cancel = clock.after(LATE_MS, () => end.abort(signal.reason))
      const farewell = answer.finally(cancel).then((opened) => {
        const { sessionId: late } = opened.wire
        return late === undefined ? undefined : leave(opened.wire, clock, LATE_MS)
      })
      // A failure is ignored: nobody waits for this session any more.
      onFarewell(farewell.catch(ignore))
      throw error
    }
  }

  /**
   * Sends a test request in the session of `wire`. Resolves to `refused` if the refusal does not prove a lost session.
   * Rejects when the server gives no clear answer.
   */
  async #askIn(
    wire: HttpWire,
    question: Question,
    signal: Signal,
  ): Promise<'known' | 'forgotten' | 'refused'> {
    const reading = await this.#ownRequest(wire, question, undefined, signal)
    if (reading.kind === 'suspected_loss') return reading.proof === 'none' ? 'refused' : 'forgotten'
    if (reading.kind === 'answered') return 'known'
    const { error } = reading
    if (error.reason === 'upstream_disconnected' && error.sent) return 'refused'
    throw error
  }

  /** Sends a request for the session itself, subject to faults. */
  async #ownRequest(
    wire: HttpWire,
    method: string,
    params: Readonly<Record<string, unknown>> | undefined,
    signal: Signal,
    options: ExchangeOptions = this.#owner,
  ): Promise<Reading> {
    const { server, faults } = this.#terms
    if (faults === undefined) return this.#request(wire, method, params, signal, options)
    // Faults handle only outcomes. So a suspected loss is kept here, and returned whatever the faults make of its
    // outcome.
    let loss: Reading | undefined
    const send = faults(async (call) => {
      const reading = await this.#request(wire, method, params, call.signal, options)
      if (reading.kind !== 'suspected_loss') return reading
      loss = reading
      return reading.otherwise
    })
    const outcome = await send(ownCall(server, method, params ?? {}, signal))
    return loss ?? outcome
  }

  #request(
    wire: HttpWire,
    method: string,
    params: unknown,
    signal: Signal,
    options: ExchangeOptions = this.#owner,
  ): Promise<Reading> {
    const id = `breakwater-${++this.#requests}:${method}`
    const request = { id, text: requestText(id, method, params), headers: undefined, signal }
    return HttpExchange.run(wire, { ...request, channel: this.#owner }, options)
  }
}

/** Whether the server accepts every question in the session of `fresh` and none in `used`. Rejects when unclear. */
async function isOnly(
  fresh: HttpWire,
  used: HttpWire,
  isKnown: (wire: HttpWire) => Promise<boolean>,
): Promise<boolean> {
  for (let round = 0; round < CHECK_ROUNDS; round++) {
    if (!(await isKnown(fresh))) return false
    if (await isKnown(used)) return false
  }
  return true
}

/** A request to test whether a server knows a session. */
type Question = 'ping' | 'tools/list' | 'prompts/list' | 'resources/list'

/** The test requests, each behind the server capability that it requires. */
const questions: readonly (readonly [string, Question])[] = [
  ['tools', 'tools/list'],
  ['prompts', 'prompts/list'],
  ['resources', 'resources/list'],
]

interface Opened {
  readonly initializeResult: Message
  readonly wire: HttpWire
}

const MAX_SESSION_ID = 4_096

/**
 * Returns the session id in a reply's headers; undefined without an id. Throws a `GatewayError` for an id that is too
 * long or not visible ASCII.
 */
function sessionIn(headers: ReplyHeaders | undefined): string | undefined {
  const id = headers?.get('mcp-session-id')
  if (id === undefined || (id.length <= MAX_SESSION_ID && /^[\x21-\x7e]+$/.test(id))) return id
  const message = `the server's session id is not 1 to ${MAX_SESSION_ID} visible ASCII characters`
  throw gatewayError('bad_reply', message, { sent: true })
}

/** Returns the `initialize` result of an outcome; throws its `GatewayError` without a result. */
function initializeResultIn(reading: Reading, conceal: Conceal): Message {
  const outcome = reading.kind === 'suspected_loss' ? reading.otherwise : reading
  if (outcome.kind !== 'answered') throw outcome.error
  const { error, result } = outcome.result.value
  if (isObject(error)) throw refusedBy('initialize failed', error, conceal, outcome.result.status)
  const span = locate(outcome.result.text, ['result'])
  if (!isObject(result) || span === undefined) throw gatewayError('bad_reply', 'initialize has no result')
  if (result.protocolVersion !== undefined) assertLegacy(result, conceal)
  return initializeResultOf(outcome.result.text.slice(span.start, span.end), result)
}

function versionOf({ value: { protocolVersion } }: Message): string {
  return typeof protocolVersion === 'string' ? protocolVersion : LATEST_LEGACY
}

const unclear = (): 'unclear' => 'unclear'
