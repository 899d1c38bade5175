import type { Answer, Call, Caller, Channel, Message, Outcome } from '../../mesh/call.ts'
import { Cancellation, type Signal } from '../../mesh/cancel.ts'
import { type Clock, type Millis, nextTurn } from '../../mesh/clock.ts'
import { gatewayError, type GatewayError } from '../../mesh/errors.ts'
import { isObject, kindOf, readMessage } from '../../protocol/jsonrpc.ts'
import { withoutEnvelope } from '../../protocol/versions.ts'
import { failure, orAborted } from '../failure.ts'
import { forwarded } from '../forwarded.ts'
import { Unread } from '../unread.ts'
import type { UpstreamSession, Upstream } from '../upstream.ts'
import { type ExchangeOptions, HttpExchange, UnderWay } from './http-exchange.ts'
import { HttpListener, type ListenerOptions } from './http-listener.ts'
import { closePools, type HttpOptions, openPools, type Pools } from './http-pools.ts'
import { answerTo, isThere, leave, postAway } from './http-post.ts'
import {
  HttpSession,
  type HttpSessionOwner,
  type HttpSessionTerms,
  SessionChecks,
  type SessionFate,
} from './http-session.ts'
import { HttpWire } from './http-wire.ts'
import type { LossProof, SuspectedLoss } from './http-status.ts'
import { StandingStreams } from './standing-stream.ts'
import type { SessionState } from '../shared/session-state.ts'

/** A server behind Streamable HTTP: an upstream session per caller, a socket pool per replica. */
export class HttpUpstream implements Upstream {
  readonly #options: HttpOptions
  readonly #pools: Pools
  readonly #terms: UpstreamSessionTerms
  readonly #upstreamSessions = new Set<UpstreamSession>()
  /** Requests under way that end sessions at the server. */
  readonly #farewells = new Set<Promise<void>>()
  /** The wire shared by all sessions without forwarded headers of an agent. */
  #plain: HttpWire | undefined
  /** The server's latest `initialize` result. Usually all sessions get the same result and share this copy. */
  #said: Message | undefined

  constructor(options: HttpOptions) {
    this.#options = options
    this.#pools = openPools(options)
    const { server, faults, timeouts } = options
    this.#terms = {
      server,
      faults,
      handshakeMs: timeouts.discovery,
      checks: new SessionChecks(),
      onFarewell: (farewell) => this.#seeOff(farewell),
      onEnded: (upstreamSession) => void this.#upstreamSessions.delete(upstreamSession),
      shared: (initializeResult) => this.#shared(initializeResult),
    }
  }

  get #plainWire(): HttpWire {
    return (this.#plain ??= this.#wireOf(undefined))
  }

  #wireOf(agent: Readonly<Record<string, string>> | undefined): HttpWire {
    const { url, headers } = this.#options
    return HttpWire.to({ url, headers, agent }, this.#pools)
  }

  async open(caller: Caller, signal: Signal): Promise<UpstreamSession> {
    const agent = forwarded(this.#options.forwardHeaders, caller.headers)
    const wire = agent === undefined ? this.#plainWire : this.#wireOf(agent)
    const upstreamSession = new HttpUpstreamSession(this.#options, this.#terms, wire, caller)
    await upstreamSession.initialize(signal)
    this.#upstreamSessions.add(upstreamSession)
    return upstreamSession
  }

  probe(signal: Signal): Promise<boolean> {
    return isThere(this.#plainWire, signal)
  }

  async close(): Promise<void> {
    for (const upstreamSession of this.#upstreamSessions) void upstreamSession.close()
    // Waits one turn, in which handshakes abandoned above add the requests that end their sessions.
    await nextTurn()
    await Promise.all(this.#farewells)
    await closePools(this.#pools)
  }

  #shared(initializeResult: Message): Message {
    if (this.#said?.text !== initializeResult.text) this.#said = initializeResult
    return this.#said
  }

  #seeOff(farewell: Promise<void>): void {
    this.#farewells.add(farewell)
    void farewell.finally(() => this.#farewells.delete(farewell))
  }
}

/** Time limit for ending a session at the server, in milliseconds. */
const GOODBYE_MS = 1_000

/** Limits of unacknowledged posts in an upstream session; calls do not count. */
const UNREAD_LIMITS = { messages: 256, bytes: 16 * 1024 ** 2 }

/**
 * Most resends of a call after lost sessions. If the new session is lost too, the call itself may be the cause, so it
 * may have run.
 */
const MOST_RECOVERIES = 1

/** After a slower refusal, in milliseconds, the call may have run; servers refuse unknown sessions at once. */
const SLOW_REFUSAL_MS: Millis = 1_000

/** How long a server may work on an abandoned call, in milliseconds: its requests meanwhile may belong to the call. */
const AFTER_GIVING_UP_MS = 5 * 60_000

/** Client capabilities that allow servers to send requests. */
const asked = ['elicitation', 'sampling', 'roots'] as const

/** How long an answer waits for the check it caused, in milliseconds: a retry then finds a working session. */
const CHECK_PATIENCE_MS = 1_000

/**
 * Terms shared by all upstream sessions with an endpoint. `onFarewell` is also called for sessions that were in use.
 */
interface UpstreamSessionTerms extends HttpSessionTerms {
  readonly onEnded: (upstreamSession: UpstreamSession) => void
}

/**
 * A caller's upstream session with one endpoint over Streamable HTTP. Request ids and progress tokens are the caller's
 * own, so bytes pass unchanged. After the server forgot the session, Breakwater reopens the session and resends the
 * calls known not to have run.
 */
class HttpUpstreamSession implements UpstreamSession, ListenerOptions, HttpSessionOwner {
  readonly caller: Caller
  readonly state: SessionState
  readonly underWay = new UnderWay()
  readonly unread = new Unread(UNREAD_LIMITS)
  readonly #options: HttpOptions
  readonly #terms: UpstreamSessionTerms
  readonly #session: HttpSession
  readonly #end = new Cancellation()
  /** Number of calls sent, and the last answered call per session. Most callers have a single session only. */
  #sent = 0
  #answeredIn: HttpWire | undefined
  #answered = 0
  #answeredElsewhere: WeakMap<HttpWire, number> | undefined
  #listener: HttpListener | undefined
  #past: StandingStreams | undefined
  /** Until when a server's request may belong to an abandoned call, on the monotonic clock. */
  #unclearUntil: Millis = -Infinity

  constructor(options: HttpOptions, terms: UpstreamSessionTerms, wire: HttpWire, caller: Caller) {
    this.#options = options
    this.#terms = terms
    this.caller = caller
    this.state = options.states.of(caller)
    this.#session = new HttpSession(terms, this, wire)
  }

  get initializeResult(): Message {
    return this.#session.initializeResult
  }

  /** A server without session ids keeps no state. */
  get keepsState(): boolean {
    return this.#session.wire.sessionId !== undefined
  }

  loseSession(): boolean {
    if (!this.keepsState) return false
    this.#session.forge('lost-on-purpose')
    return true
  }

  get ended(): Signal {
    return this.#end
  }

  /** Performs the handshake. Rejects with a `GatewayError`. */
  async initialize(signal: Signal): Promise<void> {
    await this.#session.open(signal)
    // Clients of a modern caller never listen, so the gateway listens for them: otherwise nobody would get a request
    // outside of a call's stream.
    if (this.caller.era === 'modern' && canBeAsked(this.initializeParams.capabilities)) this.listen()
  }

  exchange(call: Call): Promise<Outcome> {
    // Waits until the listening stream is open: the call may at once cause a server request over this stream.
    const opening = this.#listener?.opening
    return opening === undefined ? this.#exchange(call) : this.#exchangeAfter(opening, call)
  }

  async #exchangeAfter(opening: Promise<void>, call: Call): Promise<Outcome> {
    const error = await endBefore(opening, call)
    return error === undefined ? this.#exchange(call) : { kind: 'failed', error }
  }

  #exchange(call: Call): Promise<Outcome> {
    if (this.ended.aborted)
      return Promise.resolve({ kind: 'failed', error: this.ended.reason as GatewayError })
    const refused = this.keepsState ? undefined : this.#options.tasks.refusal(call)
    if (refused !== undefined) return Promise.resolve(refused)
    const session = this.#session
    if (call.tool === undefined) this.state.note(call)
    if (session.lost) return this.#sendAgain(call, 1)
    return this.#send(call, 0)
  }

  #send(call: Call, recoveries: number): Promise<Outcome> {
    const { wire } = this.#session
    const nth = ++this.#sent
    const at = this.clock.now()
    const { id, message, headers, signal, channel, caller, record, onSent } = call
    const text = caller.era === 'modern' ? withoutEnvelope(message.text) : message.text
    const request = { id, text, message, headers, signal, channel, wire: call.wire, record, onSent }
    return HttpExchange.run(wire, request, this).then((reading) => {
      if (reading.kind === 'suspected_loss') return this.#settle(call, { wire, nth, at }, reading, recoveries)
      if (reading.kind === 'answered' && nth > this.#lastAnswered(wire)) this.#noteAnswered(wire, nth)
      else if (reading.kind === 'failed' && reading.error.sent) {
        const isBroken = reading.error.reason === 'upstream_disconnected'
        this.#noteGivenUp(signal.aborted || isBroken)
        // Not awaited: usually the server is gone and does not answer.
        if (isBroken && this.keepsState) this.doubt(wire)
      }
      return this.keepsState ? reading : this.#options.tasks.answered(call, reading)
    })
  }

  /** Notes a call abandoned before the server finished. */
  #noteGivenUp(isSo: boolean): void {
    if (isSo && this.caller.era === 'modern') this.#unclearUntil = this.clock.now() + AFTER_GIVING_UP_MS
  }

  #lastAnswered(wire: HttpWire): number {
    return wire === this.#answeredIn ? this.#answered : (this.#answeredElsewhere?.get(wire) ?? 0)
  }

  #noteAnswered(wire: HttpWire, nth: number): void {
    const before = this.#answeredIn
    if (before !== undefined && before !== wire)
      (this.#answeredElsewhere ??= new WeakMap()).set(before, this.#answered)
    this.#answeredIn = wire
    this.#answered = nth
  }

  /**
   * Settles a call whose reply suggests a forgotten session. The call counts as not run only on three conditions. The
   * server refuses promptly; it refuses the old session but not the new session; it has answered no later call in the
   * old session. Then the call is resent, even if it has side effects. If the server still knows the session, the
   * outcome is `otherwise`. A reply without proof only triggers a session check.
   */
  async #settle(
    call: Call,
    { wire, nth, at }: Sending,
    { otherwise, proof }: SuspectedLoss,
    recoveries: number,
  ): Promise<Outcome> {
    const session = this.#session
    if (proof === 'none') {
      if (otherwise.kind === 'answered' && nth > this.#lastAnswered(wire)) this.#noteAnswered(wire, nth)
      this.#noteGivenUp(otherwise.kind === 'failed' && otherwise.error.reason === 'upstream_disconnected')
      return this.#afterCheck(otherwise, wire, call.signal)
    }
    const refusedAt = this.clock.now()
    let fate: SessionFate
    try {
      fate = await orAborted(session.fateOf(wire), call.signal)
    } catch (error) {
      return failure(call, error as GatewayError)
    }
    if (fate === 'known') return this.#afterCheck(otherwise, wire, call.signal)
    if (fate === 'unclear') return this.#afterCheck(unclear(), wire, call.signal)
    if (nth < this.#lastAnswered(wire)) return unclear()
    if (refusedAt - at > SLOW_REFUSAL_MS) return unclear()
    if (this.surfaces) return forgotten()
    if (recoveries === MOST_RECOVERIES) return unclear()
    return this.#sendAgain(call, recoveries + 1, { wire, proof })
  }

  /** Returns the outcome after checking the session of `wire`, or after `CHECK_PATIENCE_MS`. */
  async #afterCheck(outcome: Outcome, wire: HttpWire, signal: Signal): Promise<Outcome> {
    const checking = this.#session.check(wire)
    if (checking === undefined) return outcome
    await Promise.race([checking, this.clock.sleep(CHECK_PATIENCE_MS, signal)]).catch(() => undefined)
    return outcome
  }

  /** Resends a call in a newly opened session. `before`: the first attempt's lost session, if any, with its proof. */
  async #sendAgain(
    call: Call,
    recoveries: number,
    before?: { readonly wire: HttpWire; readonly proof: LossProof },
  ): Promise<Outcome> {
    const session = this.#session
    if (this.surfaces) return forgotten()
    const ran = before !== undefined && before.proof !== 'says'
    // Other attempts of this call may have run, so `sent` stays true with several attempts.
    if (!ran && call.record.attempts <= 1) call.record.sent = false
    try {
      await orAborted(session.reopen(), call.signal)
      if (before !== undefined && (await session.fateOf(before.wire)) === 'unclear') return unclear()
      if (this.ended.aborted) throw this.ended.reason
    } catch (error) {
      return { kind: 'failed', error: { ...(error as GatewayError), sent: ran } }
    }
    const opening = this.#listener?.opening
    const ended = opening && (await endBefore(opening, call))
    if (ended !== undefined) return { kind: 'failed', error: ended }
    call.record.recoveries++
    return this.#send(call, recoveries)
  }

  /** Whether the caller gets an error after a lost session, instead of a new session. */
  get surfaces(): boolean {
    return this.#options.sessionRecovery === 'surface'
  }

  post(text: string): Promise<void> {
    return this.#post(text, this)
  }

  #post(text: string, sender?: object): Promise<void> {
    if (this.ended.aborted) return Promise.reject(this.ended.reason)
    const options = { clock: this.clock, limitMs: this.ackMs, sender, signal: this.ended, leavesSent: true }
    return this.unread.send(text, () => postAway(this.#session.wire, text, options))
  }

  relisten(anew: boolean): void {
    this.#listener?.relisten(anew)
  }

  listen(): void {
    this.#listener ??= new HttpListener(this)
  }

  // The listener, the session and the exchanges call these members: they cost less memory than closures for each of
  // thousands of sessions.

  get clock(): Clock {
    return this.#options.clock
  }

  get maxReply(): number {
    return this.#options.maxReply
  }

  get unfinished(): ListenerOptions['unfinished'] {
    return this.#options.unfinished
  }

  get ackMs(): Millis {
    return this.#options.timeouts.discovery
  }

  get skipped(): ExchangeOptions['skipped'] {
    return this.#options.skipped
  }

  get onVersionError(): ExchangeOptions['onVersionError'] {
    return this.#options.onVersionError
  }

  get initializeParams(): Caller['initializeParams'] {
    return this.caller.initializeParams
  }

  get past(): StandingStreams | undefined {
    const { caller } = this
    const { server, faults } = this.#options
    if (faults === undefined) return undefined
    return (this.#past ??= new StandingStreams({ server, caller, faults }))
  }

  currentWire(): HttpWire {
    return this.#session.wire
  }

  ready(): Promise<void> {
    return this.#session.reopen()
  }

  isLost(wire: HttpWire): Promise<boolean> {
    if (this.surfaces) return Promise.resolve(false)
    return this.#session.fateOf(wire).then((fate) => fate !== 'known')
  }

  doubt(wire: HttpWire): void {
    void this.#session.check(wire)
  }

  backpressure(): Promise<void> | undefined {
    return this.unread.backpressure(this.#options.unfinished)
  }

  receive(data: string): Promise<void> | undefined {
    const message = readMessage(data)
    if (message === undefined) return undefined
    const kind = kindOf(message.value)
    if (kind === 'notification') {
      if (!this.keepsState && !this.#options.tasks.mayHear(this.caller, message)) return undefined
      const isWithdrawal = message.value.method === 'notifications/cancelled'
      if (isWithdrawal) return void this.#asker.send(message)
      // Some servers send a call's progress over the session's stream; the progress extends the call's time all the
      // same.
      const taken = (this.underWay.progressing(message) ?? this).send(message)
      // Clients sharing the stream do not wait for a slow client.
      return this.caller.era === 'legacy' ? taken : undefined
    }
    const answer = kind === 'request' ? answerTo(message, (text) => this.#post(text)) : undefined
    if (answer !== undefined) void this.#asker.send(message, answer)
    return undefined
  }

  /**
   * The channel for server requests that come outside of a call's stream. A modern caller stands for many
   * indistinguishable clients, which wait for requests only during a call. So such a request goes to the open call, if
   * there is exactly one.
   */
  get #asker(): Channel {
    if (this.caller.era === 'legacy' || this.clock.now() < this.#unclearUntil) return this
    return this.underWay.onlyChannel(this) ?? this
  }

  hasAnswered(wire: HttpWire): boolean {
    return this.#lastAnswered(wire) > 0
  }

  reopened(): void {
    this.#listener?.restart()
  }

  /** Does nothing: outside of calls, no stream opens and no client waits. */
  open(): void {}

  pause(): void {}

  send(message: Message, answer?: Answer): undefined {
    this.caller.receive(this.#options.server, message, answer)
  }

  close(): Promise<void> {
    if (this.ended.aborted) return Promise.resolve()
    this.#over(gatewayError('cancelled', 'the upstream session was closed'))
    const { wire } = this.#session
    if (wire.sessionId === undefined) return Promise.resolve()
    const farewell = leave(wire, this.#options.clock, GOODBYE_MS)
    this.#terms.onFarewell(farewell)
    return farewell
  }

  #over(error: GatewayError): void {
    this.#listener?.close()
    this.#session.close(error)
    this.#end.abort(error)
    this.#terms.onEnded(this)
    this.underWay.abandon(error)
  }
}

function canBeAsked(capabilities: unknown): boolean {
  return isObject(capabilities) && asked.some((name) => isObject(capabilities[name]))
}

/** The session of a call, the call's number in sending order, and the time of sending on the monotonic clock. */
interface Sending {
  readonly wire: HttpWire
  readonly nth: number
  readonly at: Millis
}

/** Waits for `event`. Resolves to undefined after the event, or to the error if the call is aborted first. */
function endBefore(event: Promise<void>, call: Call): Promise<GatewayError | undefined> {
  return orAborted(event, call.signal).then(
    () => undefined,
    (error: unknown) => error as GatewayError,
  )
}

function forgotten(): Outcome {
  return { kind: 'failed', error: gatewayError('session_lost', 'the server forgot the session') }
}

/** Returns the outcome of a call with a possibly lost session, where the call may have run. */
function unclear(): Outcome {
  const message = 'the server may have forgotten the session, and the call may have run'
  return { kind: 'failed', error: gatewayError('upstream_disconnected', message, { sent: true }) }
}
