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

/** The terms that all sessions with one endpoint share. */
export interface HttpSessionTerms {
  /** The server's name in the registry. */
  readonly server: string
  /** How long a whole handshake may take, whoever waits for it. */
  readonly handshakeMs: Millis
  /** Told of a session that the server may have opened for nobody: resolves when the server was told so. */
  readonly onFarewell: (farewell: Promise<void>) => void
  /** The same `initialize` result, as somebody has it already. */
  readonly shared: (initializeResult: Message) => Message
  readonly checks: SessionChecks
  /** Faults of handshakes and pings; none unless given. */
  readonly faults?: Layer | undefined
}

/** The owner of a session: says how requests are sent, and takes all that the server sends while it answers requests. */
export interface HttpSessionOwner extends ExchangeOptions, Channel {
  /** The `initialize` params. */
  readonly initializeParams: Readonly<Record<string, unknown>>
  /** The state that the server was asked to keep in mind. */
  readonly state: SessionState
  /** Whether a lost session stays lost, for its caller to know of. */
  readonly surfaces: boolean
  /** Aborted once nobody needs the session. */
  readonly ended: Signal
  /** Whether a call was answered in the session of `wire`. */
  hasAnswered(wire: HttpWire): boolean
  /** Told when a lost session was opened again. */
  reopened(): void
}

/** Whether the server knows a session; `unclear` when it could not be asked, or does not tell sessions apart. */
export type SessionFate = 'known' | 'forgotten' | 'unclear'

/** How long the acknowledgement of `notifications/initialized` is waited for: servers exist that give none. */
const INITIALIZED_MS: Millis = 1_000

/** How long the server may take to say whether it knows a session, in milliseconds. */
const PING_MS: Millis = 5_000

/** How long a server that says that it knows a session is believed, in milliseconds: a tool may fail as if it did not, call by call. */
const KNOWN_MS: Millis = 1_000

/** How often one session may be checked, in milliseconds. */
const CHECK_EVERY_MS: Millis = 5_000

/** So many times a check asks in both sessions: a server that refuses now and then, whatever the session, is found out by it. */
const CHECK_ROUNDS = 3

/** Most checks at one endpoint in a row, and the interval after which there may be one more, in milliseconds. */
const MOST_CHECKS = 16
const ONE_CHECK_MORE_MS: Millis = 500

/** Bounds how often the sessions with one endpoint are checked. */
export class SessionChecks {
  /** When the allowance is whole again, on the monotonic clock. */
  #wholeAt: Millis = -Infinity

  /** False when there have been too many. */
  take(now: Millis): boolean {
    const wholeAt = Math.max(now, this.#wholeAt) + ONE_CHECK_MORE_MS
    if (wholeAt - now > MOST_CHECKS * ONE_CHECK_MORE_MS) return false
    this.#wholeAt = wholeAt
    return true
  }

  /** One that was needed does not count: a server that was started anew may have forgotten thousands of sessions. */
  giveBack(): void {
    this.#wholeAt -= ONE_CHECK_MORE_MS
  }
}

/** After so many reopened sessions in a row without an answered call, one session is opened per interval, in milliseconds. */
const MOST_IN_VAIN = 3
const IN_VAIN_EVERY_MS: Millis = 1_000

/** How long an answer to `initialize` that nobody waits for any more is still listened to, for the session to end. */
const LATE_MS: Millis = 1_000

/**
 * A session at a server: opened by the handshake, and opened again once the server has forgotten it. Each session has a
 * wire of its own, by which calls know in which session they were sent.
 */
export class HttpSession {
  readonly #terms: HttpSessionTerms
  readonly #owner: HttpSessionOwner
  /** The wire of no session. */
  readonly #unopened: HttpWire
  #wire: HttpWire
  #initializeResult: Message = { text: '{}', value: {} }
  #lost = false
  #requests = 0
  /** Both are made when they are needed, which in most sessions they never are. */
  #reopening: SharedAttempts<void> | undefined
  /** Whether the server still knows the session of now. */
  #asking: SharedAttempts<'known' | 'forgotten'> | undefined
  /** When the server last said that it knows the session of now, on the monotonic clock. */
  #knownAt: Millis = -Infinity
  /** A check that is under way, and when the next one may begin, on the monotonic clock. */
  #checking: Promise<void> | undefined
  #nextCheckAt: Millis = -Infinity
  /** Attempts in a row to open a lost session again, since a call was answered, and when the latest one began, on the monotonic clock. */
  #inVain = 0
  #attemptedAt: Millis = -Infinity
  /** Sessions that were replaced although they may still have been known to the server. */
  #unclear: WeakSet<HttpWire> | undefined

  constructor(terms: HttpSessionTerms, owner: HttpSessionOwner, wire: HttpWire) {
    this.#terms = terms
    this.#owner = owner
    this.#unopened = wire
    this.#wire = wire
  }

  /** The `initialize` result. */
  get initializeResult(): Message {
    return this.#initializeResult
  }

  /** The wire of the session of now. */
  get wire(): HttpWire {
    return this.#wire
  }

  /** Whether the server is known to have forgotten the session: nothing is sent before it is opened again. */
  get lost(): boolean {
    return this.#lost
  }

  /** Goes on under a session id that nobody has given out: the server itself then says that it knows no such session. */
  forge(sessionId: string): void {
    // Calls that are under way in the real one may run to their end.
    this.#isUnclear(this.#wire)
    this.#wire = this.#wire.inSession(sessionId, versionOf(this.#initializeResult))
  }

  /** The handshake, and all that the caller has asked the server to keep in mind. Rejects with a `GatewayError`. */
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
   * Whether the server still knows the session of `used`, over which it has sent a reply that looks as if it did not.
   * Asked by a ping, once for all who want to know at once. Never rejects.
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
   * Finds out whether the server still knows the session of `used`, in which it has given a reply that may mean much else:
   * a session is lost when the server refuses a question in it, and takes the question in a new one, which then takes its
   * place. The question is a list, if the server has one: many servers answer pings in sessions that they do not know.
   * Undefined when no check is under way and none is due. Never rejects.
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

  /** Rejects when the server does not say. */
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

  /** Ends what is under way for the sake of the session. */
  close(reason: GatewayError): void {
    this.#reopening?.abort(reason)
    this.#asking?.abort(reason)
  }

  /** Opens a lost session again, once for all who lost it. Rejects with a `GatewayError`. */
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
    // Another attempt was faster, or nobody wants it any more.
    if (!this.#lost || end.aborted) return void onFarewell(leave(opened.wire, clock, LATE_MS))
    // A server that refuses a ping in a new session too does not tell sessions apart by it: nothing was proven by the other.
    if (fate !== 'known') this.#isUnclear(lost)
    this.#goOnIn(opened)
  }

  /** Waits until `lost` may be opened again: a server that forgets each session at once is not asked for new ones without end. */
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

  /** Asks about the session of now. Rejects when there is no telling. */
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

  /** Opens a session; who gives up does not leave one behind at the server. */
  async #initialize(signal: Signal): Promise<Opened> {
    const { onFarewell } = this.#terms
    const { initializeParams, clock, maxReply, unfinished, ackMs, unread, skipped, onVersionError } =
      this.#owner
    const wire = this.#unopened
    const end = new Cancellation()
    let head: ReplyHeaders | undefined
    const onHeaders = (headers: ReplyHeaders) => (head = headers)
    // Not among what ends with the upstream session: only the answer tells which session there is to end.
    const underWay = new UnderWay()
    const own = { clock, maxReply, unfinished, ackMs, unread, skipped, onVersionError, onHeaders, underWay }
    const answer = this.#ownRequest(wire, 'initialize', initializeParams, end, own).then((reading) => {
      const sessionId = sessionIn(head)
      try {
        const initializeResult = initializeResultIn(reading, (text) => wire.concealing()(text))
        return { initializeResult, wire: wire.inSession(sessionId, versionOf(initializeResult)) }
      } catch (error) {
        // A session with which nothing can be begun is not left behind.
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
      // Nobody waits for a session that was opened in vain.
      onFarewell(farewell.catch(ignore))
      throw error
    }
  }

  /** `refused`: in a way that may mean much else. Rejects when the server does not say. */
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

  /** A request for the sake of the session itself, which faults may hit. */
  async #ownRequest(
    wire: HttpWire,
    method: string,
    params: Readonly<Record<string, unknown>> | undefined,
    signal: Signal,
    options: ExchangeOptions = this.#owner,
  ): Promise<Reading> {
    const { server, faults } = this.#terms
    if (faults === undefined) return this.#request(wire, method, params, signal, options)
    // Faults know outcomes only. What looks like a loss is no answer, whatever they make of it.
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

/** Whether the server takes each question in the session of `fresh`, and none in that of `used`. Rejects when it does not say. */
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

/** A request by which a server shows whether it knows a session. */
type Question = 'ping' | 'tools/list' | 'prompts/list' | 'resources/list'

/** By what a server has to offer for it. */
const questions: readonly (readonly [string, Question])[] = [
  ['tools', 'tools/list'],
  ['prompts', 'prompts/list'],
  ['resources', 'resources/list'],
]

interface Opened {
  readonly initializeResult: Message
  readonly wire: HttpWire
}

/** Longest session id, in characters. */
const MAX_SESSION_ID = 4_096

/** The session that a reply names, which has to be one that HTTP can carry (visible ASCII). Throws a `GatewayError`. */
function sessionIn(headers: ReplyHeaders | undefined): string | undefined {
  const id = headers?.get('mcp-session-id')
  if (id === undefined || (id.length <= MAX_SESSION_ID && /^[\x21-\x7e]+$/.test(id))) return id
  const message = `the server names its session by something else than 1 to ${MAX_SESSION_ID} visible characters of ASCII`
  throw gatewayError('bad_reply', message, { sent: true })
}

/** The `initialize` result of an outcome; throws its `GatewayError` when there is none. */
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
