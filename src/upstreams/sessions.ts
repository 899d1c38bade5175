import { type Call, type Caller, derive, type Message, type Outcome, type Service } from '../mesh/call.ts'
import { Cancellation, ignore, type Signal } from '../mesh/cancel.ts'
import type { Cancel, Clock, Millis } from '../mesh/clock.ts'
import { gatewayError, type GatewayError, type Reason } from '../mesh/errors.ts'
import { withoutBaggage } from '../protocol/baggage.ts'
import { isDeeperThan, replaceAt } from '../protocol/json-span.ts'
import { isObject } from '../protocol/jsonrpc.ts'
import { DEADLINE_KEY, withMeta } from '../protocol/meta.ts'
import { callTrace, stamped } from '../telemetry/tracing/call-trace.ts'
import { abortError, failure, orAborted } from './failure.ts'
import { replyToCaller } from '../protocol/renumber.ts'
import { PATIENCE_MS, SharedAttempts } from './shared-attempts.ts'
import type { Starting, UpstreamSession, Upstream } from './upstream.ts'
import { roundedDuration } from '../units/duration.ts'

export interface BoundSession {
  readonly upstreamSession: UpstreamSession
  readonly replica: number
  /** Whether the replica kept state for the caller when the upstream session began. */
  readonly keepsState: boolean
  calls: number
  /** A retired session takes no new calls and closes after its last call. */
  retired: boolean
}

export interface UpstreamSessionsOptions {
  readonly replicas: readonly Upstream[]
  readonly clock: Clock
  /** Limit of a handshake; `timeouts.discovery`. */
  readonly timeoutMs: Millis
  /** How long a process may take until its first output; defaults to `timeoutMs`. */
  readonly startMs?: Millis
  readonly server?: string
  /** Called with the reason when the server did not take a caller's notification. */
  readonly onLost?: (error: GatewayError) => void
  /** Whether the server gets the baggage of agents; default false. */
  readonly passesBaggage?: boolean
  /** Called when an upstream session has ended, with its duration and its error. */
  readonly onEnd?: (bound: BoundSession, lastedMs: Millis, error: GatewayError) => void
}

/** How long a caller waits for a process after a failed start, in milliseconds: the process may have recovered. */
const PATIENCE_WITH_FAILED_MS: Millis = 500

/** A session at least this old is replaced at once when it ends, in milliseconds. */
const SETTLED_MS: Millis = 30_000

/** The `retryAfterMs` of callers while a process is starting, in milliseconds. */
const ASK_AGAIN_MS: Millis = 1_000

/** Deepest nesting of an `initialize` result, which is merged with other results and shown to operators. */
const MAX_INITIALIZE_RESULT_DEPTH = 64

/** Key for "any replica" among the handshakes under way. */
const ANY = -1

/**
 * All upstream sessions with a server: at most one per caller and replica. A caller without a named replica gets its
 * oldest upstream session, or a new session with the next replica to answer.
 */
export class UpstreamSessions {
  readonly #options: UpstreamSessionsOptions
  readonly #open = new Map<Caller, BoundSession[]>()
  /** Sessions already left by their callers, with calls still under way. */
  readonly #retired = new Set<BoundSession>()
  /** Handshakes under way, by caller and replica. */
  readonly #opening = new Map<Caller, Map<number, SharedAttempts<BoundSession>>>()
  /** For each replica, the number of callers whose first upstream session is there and keeps state. */
  readonly #atHome: number[]
  /** Whether the server was found to keep state for callers of each era. */
  readonly #keepsState = { legacy: false, modern: false }
  /** Callers whose session has ended although the server kept subscriptions or a log level for them. */
  readonly #bereft = new Set<Caller>()
  #next = 0

  constructor(options: UpstreamSessionsOptions) {
    this.#options = options
    this.#atHome = options.replicas.map(() => 0)
  }

  /** Number of callers with an upstream session. */
  get size(): number {
    return this.#open.size
  }

  /** Returns the caller's upstream session with a replica; without a replica, the caller's first session. */
  current(caller: Caller, replica?: number): BoundSession | undefined {
    const bound = this.#open.get(caller)
    return replica === undefined ? bound?.[0] : bound?.find((one) => one.replica === replica)
  }

  all(caller: Caller): readonly UpstreamSession[] {
    return this.#open.get(caller)?.map(({ upstreamSession }) => upstreamSession) ?? []
  }

  /** Passes a caller's notification to all its upstream sessions, or only to `only`. Does not wait for delivery. */
  notify(caller: Caller, message: Pick<Message, 'text' | 'value'>, only?: UpstreamSession): void {
    const { text } = this.outgoing(message)
    for (const upstreamSession of only === undefined ? this.all(caller) : [only])
      upstreamSession.post(text).catch((error: GatewayError) => this.#options.onLost?.(error))
  }

  /** Returns a caller's message in the form for the server: without baggage unless the server gets baggage. */
  outgoing<M extends Pick<Message, 'text' | 'value'>>(message: M): M {
    const { params } = message.value
    if (!isObject(params) || params._meta === undefined || this.#options.passesBaggage === true)
      return message
    return withoutBaggage(message)
  }

  /** Requests missing listening streams (messages outside of calls); with `anew` also replaces open streams. */
  relisten(anew: boolean): void {
    for (const bound of this.#open.values())
      for (const { upstreamSession } of bound) upstreamSession.relisten?.(anew)
  }

  callers(): IterableIterator<Caller> {
    return this.#open.keys()
  }

  /** Returns the caller's upstream session and opens a session if needed. Rejects with a `GatewayError`. */
  of(caller: Caller, replica?: number): Promise<BoundSession> {
    const current = this.current(caller, replica)
    if (current !== undefined) return Promise.resolve(current)
    const only = this.#options.replicas.length === 1 ? 0 : undefined
    const at = replica ?? only
    if (at === undefined) return this.#join(caller, ANY, (end) => this.#beginAnywhere(caller, end), Infinity)
    return this.#join(caller, at, (end) => this.#begin(caller, at, end))
  }

  /**
   * Like `of`, but rejects soon if the last start of the process failed: the next start may fail as well, after a long
   * time.
   */
  soon(caller: Caller, replica?: number): Promise<BoundSession> {
    const opening = this.of(caller, replica)
    const failure = this.starting(caller, replica)?.failure
    if (failure === undefined) return opening
    return new Promise((resolve, reject) => {
      const cancel: Cancel = this.#options.clock.after(PATIENCE_WITH_FAILED_MS, () => {
        const { told } = this.starting(caller, replica) ?? {}
        const message = told === undefined ? failure.message : `${told}; before, ${failure.message}`
        const options = { retryAfterMs: ASK_AGAIN_MS }
        reject({ ...gatewayError('upstream_unavailable', message, options), notStarted: true })
      })
      opening.finally(cancel).then(resolve, reject)
    })
  }

  /** Returns the process start for which a caller waits; undefined without a start. */
  starting(caller: Caller, replica = 0): Starting | undefined {
    return this.#options.replicas[replica]?.starting?.(caller)
  }

  /** Whether upstream sessions start processes. Such starts have limits of their own. */
  get startsProcesses(): boolean {
    return this.#options.replicas[0]?.starting !== undefined
  }

  /** Opens new sessions for listening callers that have lost their sessions. Call it after each successful probe. */
  restore(): void {
    for (const caller of this.#bereft) this.#restore(caller)
  }

  #restore(caller: Caller): void {
    if (this.#open.has(caller)) this.#bereft.delete(caller)
    // After a failure, the next successful probe tries again.
    else if (caller.listening) this.of(caller).then(() => this.#bereft.delete(caller), ignore)
  }

  /** Ends a caller's upstream sessions and handshakes. The next call opens a new session, perhaps elsewhere. */
  async drop(caller: Caller): Promise<void> {
    const unwanted = gatewayError('cancelled', 'the upstream session is not needed any more')
    for (const attempts of [...(this.#opening.get(caller)?.values() ?? [])]) attempts.abort(unwanted)
    const ending = this.#open.get(caller) ?? []
    this.#bereft.delete(caller)
    this.#set(caller, [])
    await Promise.all(ending.map(({ upstreamSession }) => upstreamSession.close()))
  }

  /**
   * Returns the replica that keeps state for a caller, now or after the handshake, and must get all its calls.
   * Undefined if any replica can take them.
   */
  home(caller: Caller): number | undefined {
    const bound = this.#open.get(caller)
    // Replicas of the same server may speak different eras.
    if (bound !== undefined) return bound.find(({ upstreamSession }) => upstreamSession.keepsState)?.replica
    if (!this.#isKept(caller)) return undefined
    for (const replica of this.#opening.get(caller)?.keys() ?? []) if (replica !== ANY) return replica
    return undefined
  }

  /**
   * Returns the number of callers with state at each replica; undefined when the server keeps no state for this caller.
   */
  homes(caller: Caller): readonly number[] | undefined {
    return this.#isKept(caller) ? this.#atHome : undefined
  }

  /** Takes an upstream session from its caller, whose next call opens a new session. Calls under way end normally. */
  retire(caller: Caller, bound: BoundSession): void {
    this.#forget(caller, bound)
    if (bound.retired) return
    bound.retired = true
    if (bound.calls === 0) void bound.upstreamSession.close()
    else this.#retired.add(bound)
  }

  /** Notes the end of a call in an upstream session. */
  left(bound: BoundSession): void {
    if (--bound.calls > 0 || !bound.retired) return
    this.#retired.delete(bound)
    void bound.upstreamSession.close()
  }

  /** Like `drop`, but sessions with calls under way close after their last call. */
  async end(caller: Caller): Promise<void> {
    for (const bound of this.#open.get(caller) ?? []) if (bound.calls > 0) this.retire(caller, bound)
    await this.drop(caller)
  }

  leave(caller: Caller, replica: number): void {
    const bound = this.current(caller, replica)
    if (bound !== undefined) this.retire(caller, bound)
  }

  async closeAll(): Promise<void> {
    this.#bereft.clear()
    await Promise.all([
      ...[...this.#open.keys(), ...this.#opening.keys()].map((caller) => this.drop(caller)),
      ...[...this.#retired].map(({ upstreamSession }) => upstreamSession.close()),
    ])
  }

  /** Joins the handshake under way, or begins a handshake. */
  #join(
    caller: Caller,
    key: number,
    begin: (end: Signal) => Promise<BoundSession>,
    patienceMs = this.#patienceFor(key),
  ): Promise<BoundSession> {
    const under = this.#opening.get(caller) ?? new Map<number, SharedAttempts<BoundSession>>()
    this.#opening.set(caller, under)
    const attempts = under.get(key) ?? new SharedAttempts(this.#options.clock, begin, patienceMs)
    under.set(key, attempts)
    const over = () => {
      if (attempts.underWay) return
      under.delete(key)
      if (under.size === 0) this.#opening.delete(caller)
    }
    const outcome = attempts.join()
    outcome.then(over, over)
    return outcome
  }

  /**
   * Returns when a second handshake may start. Never for a process server: a second handshake would start a second
   * process.
   */
  #patienceFor(replica: number): Millis {
    return this.#options.replicas[replica]?.probe === undefined ? Infinity : PATIENCE_MS
  }

  /**
   * Tries all replicas in turn; each call of this method begins one replica further. Each replica gets an equal share
   * of the time left.
   */
  async #beginAnywhere(caller: Caller, end: Signal): Promise<BoundSession> {
    const { replicas, clock, timeoutMs } = this.#options
    const { length } = replicas
    const until = clock.now() + timeoutMs
    let failure: GatewayError = gatewayError('upstream_unavailable', 'the server has no replica')
    for (let i = 0, first = this.#next++; i < length && !end.aborted; i++) {
      const replica = (first + i) % length
      const shareMs = Math.max(1, (until - clock.now()) / (length - i))
      try {
        return (
          this.current(caller, replica) ??
          (await this.#join(caller, replica, (ended) => this.#begin(caller, replica, ended, shareMs)))
        )
      } catch (error) {
        failure = error as GatewayError
      }
    }
    throw failure
  }

  async #begin(
    caller: Caller,
    replica: number,
    end: Signal,
    limitMs = this.#options.timeoutMs,
  ): Promise<BoundSession> {
    const { replicas, clock, timeoutMs, startMs = timeoutMs, server } = this.#options
    const limit = new Cancellation()
    end.addEventListener('abort', () => limit.abort(end.reason))
    const key = server === undefined ? 'timeouts.discovery' : `mcpServers.${server}.timeouts.discovery`
    const tookTooLong = () => {
      const message = `the handshake took longer than ${roundedDuration(limitMs)} (${key})`
      limit.abort(gatewayError('attempt_timeout', message))
    }
    const cancel = this.startsProcesses ? () => undefined : clock.after(limitMs, tookTooLong)
    const opening = (replicas[replica] as Upstream).open(caller, limit, { startMs, handshakeMs: timeoutMs })
    try {
      const upstreamSession = await orAborted(opening, limit)
      if (limit.aborted) throw abortError(limit)
      if (isDeeperThan(MAX_INITIALIZE_RESULT_DEPTH, upstreamSession.initializeResult.text)) {
        void upstreamSession.close()
        const what = `the server's initialize result is nested deeper than ${MAX_INITIALIZE_RESULT_DEPTH}`
        throw gatewayError('bad_reply', what)
      }
      const { keepsState } = upstreamSession
      return this.#keep(caller, { upstreamSession, replica, keepsState, calls: 0, retired: false })
    } catch (error) {
      // Closes a session opened too late.
      if (limit.aborted) opening.then((upstreamSession) => upstreamSession.close(), ignore)
      throw error
    } finally {
      cancel()
    }
  }

  #keep(caller: Caller, bound: BoundSession): BoundSession {
    const { upstreamSession, replica } = bound
    if (upstreamSession.ended.aborted) throw upstreamSession.ended.reason
    const other = this.current(caller, replica)
    if (other !== undefined) {
      void upstreamSession.close()
      return other
    }
    // Uses `concat`: a spread would reserve room for 17 entries.
    this.#set(caller, (this.#open.get(caller) ?? []).concat(bound))
    if (upstreamSession.keepsState) this.#keepsState[caller.era] = true
    if (caller.listening) upstreamSession.listen()
    const { clock, onEnd } = this.#options
    const beganAt = clock.now()
    const over = () => {
      const isLost = this.current(caller, replica) === bound && upstreamSession.isAskedToRemember === true
      this.#forget(caller, bound)
      if (isLost) {
        this.#bereft.add(caller)
        // A session that has ended early is reopened only after the next successful probe.
        if (clock.now() - beganAt >= SETTLED_MS) this.#restore(caller)
      }
      onEnd?.(bound, clock.now() - beganAt, upstreamSession.ended.reason as GatewayError)
    }
    upstreamSession.ended.addEventListener('abort', over, { once: true })
    return bound
  }

  /**
   * Whether the server keeps state for a caller. A server with state for modern callers speaks the legacy era with
   * every caller.
   */
  #isKept(caller: Caller): boolean {
    return this.#keepsState.modern || this.#keepsState[caller.era]
  }

  #forget(caller: Caller, bound: BoundSession): void {
    const open = this.#open.get(caller)
    if (open?.includes(bound) === true)
      this.#set(
        caller,
        open.filter((one) => one !== bound),
      )
  }

  /** Sets a caller's upstream sessions and updates the numbers of callers with state. */
  #set(caller: Caller, bound: BoundSession[]): void {
    this.#count(this.#open.get(caller)?.[0], -1)
    this.#count(bound[0], 1)
    if (bound.length > 0) this.#open.set(caller, bound)
    else this.#open.delete(caller)
  }

  #count(home: BoundSession | undefined, by: number): void {
    if (home?.keepsState === true) this.#atHome[home.replica] = (this.#atHome[home.replica] ?? 0) + by
  }
}

interface SendingParts {
  readonly upstreamSessions: UpstreamSessions
  readonly clock: Clock
  readonly replicas: number
  /** Whether the gateway may replace a caller's session without telling the caller. */
  readonly mayMove: () => boolean
  /**
   * Called when a call failed and the replica may be the cause; `replica` is undefined if the call could use any
   * replica.
   */
  readonly suspect: (replica: number | undefined, reason: string) => void
  /** Called after each answer, whatever the content. */
  readonly answered: () => void
}

type LookParts = Omit<SendingParts, 'clock' | 'answered'>

/** Failures after which a replica may be in trouble. */
const suspicious: ReadonlySet<string> = new Set<Reason>([
  'attempt_timeout',
  'upstream_disconnected',
  'upstream_status',
  'upstream_unavailable',
])

/**
 * Reacts to a failed call: retires the session or suspects the replica. Other calls over the same upstream session have
 * their own connections and continue. `bound`: the session of the call; undefined when none could be opened.
 */
function look(
  { upstreamSessions, replicas, mayMove, suspect }: LookParts,
  { caller, replica }: Call,
  bound: BoundSession | undefined,
  { reason, sent }: GatewayError,
): void {
  if (bound === undefined) return suspect(replica ?? (replicas === 1 ? 0 : undefined), reason)
  const isGone = reason === 'upstream_unavailable' && replicas > 1 && mayMove()
  // The server refuses to reopen a lost session; the server may speak another era by now.
  const isRefused = reason === 'upstream_refused' && !sent
  if (isGone || isRefused || reason === 'session_lost') upstreamSessions.retire(caller, bound)
  if (suspicious.has(reason)) suspect(bound.replica, reason)
}

/** Records attempts and failures like `sendOver`, for attempts ended by faults before `sendOver`. */
export class FaultedAttempts {
  readonly #parts: LookParts

  constructor(parts: LookParts) {
    this.#parts = parts
  }

  /** Returns false when the attempt is not counted: nothing was sent, and the caller has no upstream session. */
  begin({ caller, replica, record }: Call, sent: boolean): boolean {
    const bound = this.#parts.upstreamSessions.current(caller, replica)
    if (bound === undefined && !sent) return false
    record.attempts++
    record.replica = bound?.replica ?? replica ?? record.replica
    record.sent ||= sent
    return true
  }

  failed(call: Call, error: GatewayError): void {
    look(this.#parts, call, this.#parts.upstreamSessions.current(call.caller, call.replica), error)
  }
}

/**
 * Returns the error for a caller whose time ran out while the process was starting; `notStarted` marks an error that
 * says nothing about calls.
 */
export function whileStarting(error: GatewayError, starting: Starting | undefined): GatewayError {
  if (starting === undefined || error.reason === 'cancelled') return error
  const { told, failure: before } = starting
  const message = `${error.message}; ${told}${before === undefined ? '' : `; before, ${before.message}`}`
  const next = { ...error, message, retryAfterMs: error.retryAfterMs ?? ASK_AGAIN_MS }
  return error.reason === 'deadline_exceeded' ? { ...next, notStarted: true } : next
}

/** Returns the service for sending calls to a server over the caller's upstream session, opened if needed. */
export function sendOver(parts: SendingParts): Service {
  const { upstreamSessions, clock } = parts

  function exchange(bound: BoundSession, call: Call): Promise<Outcome> {
    const { record } = call
    record.attempts++
    record.replica = bound.replica
    bound.calls++
    const message = upstreamSessions.outgoing(call.message)
    const outgoing = message === call.message ? call : derive(call, { message })
    return exchangeOver(bound.upstreamSession, outgoing, clock).then(
      (outcome) => {
        upstreamSessions.left(bound)
        if (outcome.kind === 'failed') look(parts, call, bound, outcome.error)
        else parts.answered()
        return outcome
      },
      (defect: unknown) => {
        upstreamSessions.left(bound)
        throw defect
      },
    )
  }

  async function sendFirst(call: Call): Promise<Outcome> {
    let opened: BoundSession
    try {
      opened = await orAborted(upstreamSessions.soon(call.caller, call.replica), call.signal)
    } catch (error) {
      if (call.signal.aborted)
        return failure(
          call,
          whileStarting(abortError(call.signal), upstreamSessions.starting(call.caller, call.replica)),
        )
      look(parts, call, undefined, error as GatewayError)
      // The handshake may have been sent, but not the call itself.
      return { kind: 'failed', error: { ...(error as GatewayError), sent: false } }
    }
    return exchange(opened, call)
  }

  return (call) => {
    const bound = upstreamSessions.current(call.caller, call.replica)
    return bound === undefined ? sendFirst(call) : exchange(bound, call)
  }
}

/** Number of resent calls, a part of each new id: an id must not occur twice in an upstream session. */
let resent = 0

/** Sends a call with its remaining time, and under a new id for a retry. */
export function exchangeOver(upstreamSession: UpstreamSession, call: Call, clock: Clock): Promise<Outcome> {
  const traced = callTrace.of(call.record) === undefined ? call : stamped(call)
  if (call.attempt === 1 && call.deadline?.reserveMs === undefined) return upstreamSession.exchange(traced)
  const outgoing = withNewId(withTimeLeft(traced, clock))
  const exchanged = upstreamSession.exchange(outgoing)
  if (outgoing.id === call.id) return exchanged
  return exchanged.then((outcome) =>
    outcome.kind === 'answered' ? { ...outcome, result: replyToCaller(call, outcome.result) } : outcome,
  )
}

function withTimeLeft(call: Call, clock: Clock): Call {
  const { deadline, message } = call
  if (deadline?.reserveMs === undefined) return call
  const leftMs = Math.max(1, Math.floor(deadline.at - clock.now() - deadline.reserveMs))
  return derive(call, { message: withMeta(message, 'params', DEADLINE_KEY, leftMs) })
}

function withNewId(call: Call): Call {
  if (call.attempt === 1) return call
  const id = `${call.id}~${++resent}`
  const { text, value } = call.message
  return derive(call, { id, message: { text: replaceAt(text, ['id'], id), value: { ...value, id } } })
}
