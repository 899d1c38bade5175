import { type Call, type Caller, derive, type Message, type Outcome, type Service } from '../mesh/call.ts'
import { Cancellation, ignore, type Signal } from '../mesh/cancel.ts'
import type { Cancel, Clock, Millis } from '../mesh/clock.ts'
import { gatewayError, type GatewayError, type Reason } from '../mesh/errors.ts'
import { withoutBaggage } from '../protocol/baggage.ts'
import { isDeeperThan, replaceAt } from '../protocol/json-span.ts'
import { isObject } from '../protocol/jsonrpc.ts'
import { DEADLINE_KEY, withMeta } from '../protocol/meta.ts'
import { stamped } from '../telemetry/tracing/call-trace.ts'
import { abortError, failure, orAborted } from './failure.ts'
import { replyToCaller } from '../protocol/renumber.ts'
import { PATIENCE_MS, SharedAttempts } from './shared-attempts.ts'
import type { Starting, UpstreamSession, Upstream } from './upstream.ts'
import { roundedDuration } from '../units/duration.ts'

/** A caller's upstream session, and the replica that it is held with. */
export interface BoundSession {
  readonly upstreamSession: UpstreamSession
  readonly replica: number
  /** Whether the replica kept something of the caller when the upstream session began. */
  readonly keepsState: boolean
  /** Calls under way over it. */
  calls: number
  /** Whether it is closed when the last of them has ended, and takes no new ones. */
  retired: boolean
}

export interface UpstreamSessionsOptions {
  readonly replicas: readonly Upstream[]
  readonly clock: Clock
  /** How long a handshake may take; `timeouts.discovery`. */
  readonly timeoutMs: Millis
  /** How long a process may take until it says something; as long as a handshake unless given. */
  readonly startMs?: Millis
  /** The server's name in the registry, for messages. */
  readonly server?: string
  /** Told why a notification of a caller has not been taken. */
  readonly onLost?: (error: GatewayError) => void
  /** Whether the server gets the baggage of agents; not unless given. */
  readonly passesBaggage?: boolean
  /** Told of each upstream session that is over, how long it lasted, and by which error it ended. */
  readonly onEnd?: (bound: BoundSession, lastedMs: Millis, error: GatewayError) => void
}

/** How long a caller waits for a process whose last start has failed, in milliseconds: it may be well again. */
const PATIENCE_WITH_FAILED_MS: Millis = 500

/** A session that has lived for so long is begun anew at once when it ends, in milliseconds. */
const SETTLED_MS: Millis = 30_000

/** When to ask again after a process that is being started, in milliseconds. */
const ASK_AGAIN_MS: Millis = 1_000

/** Deepest nesting of what a server says of itself: it is put together with that of others, and shown to operators. */
const MAX_INITIALIZE_RESULT_DEPTH = 64

/** Stands for "any replica" among the handshakes under way. */
const ANY = -1

/**
 * The upstream sessions with one server: for each caller at most one per replica. Who names no replica gets the
 * upstream session that was begun first, or a new one with the next replica that answers.
 */
export class UpstreamSessions {
  readonly #options: UpstreamSessionsOptions
  readonly #open = new Map<Caller, BoundSession[]>()
  /** The upstream sessions that their callers have left, and that calls still go over. */
  readonly #retired = new Set<BoundSession>()
  /** Handshakes under way, by the replica that they are for. */
  readonly #opening = new Map<Caller, Map<number, SharedAttempts<BoundSession>>>()
  /** How many callers are at home at each replica. One that has upstream sessions with several is so where its first is. */
  readonly #atHome: number[]
  /** Whether the server was found to keep something of callers that speak an era themselves. */
  readonly #keepsState = { legacy: false, modern: false }
  /** Callers whose session has ended although the server was to remember something of them. */
  readonly #bereft = new Set<Caller>()
  #next = 0

  constructor(options: UpstreamSessionsOptions) {
    this.#options = options
    this.#atHome = options.replicas.map(() => 0)
  }

  /** How many callers have an upstream session. */
  get size(): number {
    return this.#open.size
  }

  /** The caller's upstream session with a replica, or with the first that it has one with. */
  current(caller: Caller, replica?: number): BoundSession | undefined {
    const bound = this.#open.get(caller)
    return replica === undefined ? bound?.[0] : bound?.find((one) => one.replica === replica)
  }

  /** All upstream sessions of a caller. */
  all(caller: Caller): readonly UpstreamSession[] {
    return this.#open.get(caller)?.map(({ upstreamSession }) => upstreamSession) ?? []
  }

  /** Passes a notification of a caller on, over all of its upstream sessions, or `only` one. Nobody waits for it to be taken. */
  notify(caller: Caller, message: Pick<Message, 'text' | 'value'>, only?: UpstreamSession): void {
    const { text } = this.outgoing(message)
    for (const upstreamSession of only === undefined ? this.all(caller) : [only])
      upstreamSession.post(text).catch((error: GatewayError) => this.#options.onLost?.(error))
  }

  /** A message of a caller as the server is to get it. */
  outgoing<M extends Pick<Message, 'text' | 'value'>>(message: M): M {
    const { params } = message.value
    if (!isObject(params) || params._meta === undefined || this.#options.passesBaggage === true)
      return message
    return withoutBaggage(message)
  }

  /** Has the streams for what belongs to no call asked for that are not there; with `anew` also those that are. */
  relisten(anew: boolean): void {
    for (const bound of this.#open.values())
      for (const { upstreamSession } of bound) upstreamSession.relisten?.(anew)
  }

  /** The callers that have an upstream session. */
  callers(): IterableIterator<Caller> {
    return this.#open.keys()
  }

  /** The caller's upstream session, begun if need be. Rejects with a `GatewayError`. */
  of(caller: Caller, replica?: number): Promise<BoundSession> {
    const current = this.current(caller, replica)
    if (current !== undefined) return Promise.resolve(current)
    const only = this.#options.replicas.length === 1 ? 0 : undefined
    const at = replica ?? only
    if (at === undefined) return this.#join(caller, ANY, (end) => this.#beginAnywhere(caller, end), Infinity)
    return this.#join(caller, at, (end) => this.#begin(caller, at, end))
  }

  /**
   * The same for somebody who has no time to lose: where the last start of a process failed, the next one may fare no
   * better, and takes long to show it.
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

  /** The start of the process that a caller waits for; undefined when there is none. */
  starting(caller: Caller, replica = 0): Starting | undefined {
    return this.#options.replicas[replica]?.starting?.(caller)
  }

  /** Whether processes are started for upstream sessions: that takes as long as it needs, and has limits of its own. */
  get startsProcesses(): boolean {
    return this.#options.replicas[0]?.starting !== undefined
  }

  /** Begins sessions for those that lost one and only listen: else they would hear nothing more. For after each good probe. */
  restore(): void {
    for (const caller of this.#bereft) this.#restore(caller)
  }

  #restore(caller: Caller): void {
    if (this.#open.has(caller)) this.#bereft.delete(caller)
    // Where that fails, it is tried again after the next good probe.
    else if (caller.listening) this.of(caller).then(() => this.#bereft.delete(caller), ignore)
  }

  /** Ends a caller's upstream sessions, and the handshakes for them, so that the next call begins a new one, perhaps elsewhere. */
  async drop(caller: Caller): Promise<void> {
    const unwanted = gatewayError('cancelled', 'the upstream session is not needed any more')
    for (const attempts of [...(this.#opening.get(caller)?.values() ?? [])]) attempts.abort(unwanted)
    const ending = this.#open.get(caller) ?? []
    this.#bereft.delete(caller)
    this.#set(caller, [])
    await Promise.all(ending.map(({ upstreamSession }) => upstreamSession.close()))
  }

  /**
   * The replica that a caller's calls have to go to, because it may remember something of the caller, or will when the
   * handshake that is under way is done; undefined: any will do.
   */
  home(caller: Caller): number | undefined {
    const bound = this.#open.get(caller)
    // Replicas of one server need not speak the same eras.
    if (bound !== undefined) return bound.find(({ upstreamSession }) => upstreamSession.keepsState)?.replica
    if (!this.#isKept(caller)) return undefined
    for (const replica of this.#opening.get(caller)?.keys() ?? []) if (replica !== ANY) return replica
    return undefined
  }

  /** How many callers are at home at each replica; undefined when the server keeps nothing of such a caller. */
  homes(caller: Caller): readonly number[] | undefined {
    return this.#isKept(caller) ? this.#atHome : undefined
  }

  /** Takes an upstream session from its caller, whose next call begins a new one; calls that are under way over it end in order. */
  retire(caller: Caller, bound: BoundSession): void {
    this.#forget(caller, bound)
    if (bound.retired) return
    bound.retired = true
    if (bound.calls === 0) void bound.upstreamSession.close()
    else this.#retired.add(bound)
  }

  /** A call that went over an upstream session has ended. */
  left(bound: BoundSession): void {
    if (--bound.calls > 0 || !bound.retired) return
    this.#retired.delete(bound)
    void bound.upstreamSession.close()
  }

  /** Ends a caller's upstream sessions as `drop` does, but those that calls go over still: with the last of these, which others may wait for. */
  async end(caller: Caller): Promise<void> {
    for (const bound of this.#open.get(caller) ?? []) if (bound.calls > 0) this.retire(caller, bound)
    await this.drop(caller)
  }

  /** Takes a caller's upstream session with a replica from it, as `retire` does. */
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

  /** Waits for what is under way, or begins it. */
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

  /** A second handshake costs a server that is reached over a network little; a process would be started twice. */
  #patienceFor(replica: number): Millis {
    return this.#options.replicas[replica]?.probe === undefined ? Infinity : PATIENCE_MS
  }

  /** Tries all replicas in turn, each time from the next one on; each gets an equal part of the time that is left. */
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
        const what = `what the server says of itself is nested deeper than ${MAX_INITIALIZE_RESULT_DEPTH}`
        throw gatewayError('bad_reply', what)
      }
      const { keepsState } = upstreamSession
      return this.#keep(caller, { upstreamSession, replica, keepsState, calls: 0, retired: false })
    } catch (error) {
      // One that comes too late is nobody's.
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
      // Another attempt was faster.
      void upstreamSession.close()
      return other
    }
    // Not by a spread, which makes room for 17.
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
        // One that ends again and again is begun no more often than the server is probed.
        if (clock.now() - beganAt >= SETTLED_MS) this.#restore(caller)
      }
      onEnd?.(bound, clock.now() - beganAt, upstreamSession.ended.reason as GatewayError)
    }
    upstreamSession.ended.addEventListener('abort', over, { once: true })
    return bound
  }

  /** A server that keeps something of modern callers speaks the legacy era with everybody. */
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

  /** Notes the upstream sessions of a caller, and with them where it is at home. */
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
  /** How many replicas there are to go to. */
  readonly replicas: number
  /** Whether callers may get another session in place of theirs, without a word. */
  readonly mayMove: () => boolean
  /** A call got no answer of a replica, for a reason that is the replica's; undefined: it was to go to any. */
  readonly suspect: (replica: number | undefined, reason: string) => void
  /** A call got an answer, whatever it says. */
  readonly answered: () => void
}

type LookParts = Omit<SendingParts, 'clock' | 'answered'>

/** Ends of a call after which a replica may be in trouble. */
const suspicious: ReadonlySet<string> = new Set<Reason>([
  'attempt_timeout',
  'upstream_disconnected',
  'upstream_status',
  'upstream_unavailable',
])

/**
 * A failure may say more than that one call failed. The calls that are under way over the same upstream session have
 * connections of their own, and end as they may. `bound`: the upstream session that it went over; undefined when none could be begun.
 */
function look(
  { upstreamSessions, replicas, mayMove, suspect }: LookParts,
  { caller, replica }: Call,
  bound: BoundSession | undefined,
  { reason, sent }: GatewayError,
): void {
  if (bound === undefined) return suspect(replica ?? (replicas === 1 ? 0 : undefined), reason)
  const isGone = reason === 'upstream_unavailable' && replicas > 1 && mayMove()
  // A lost session that the server does not open again: it may speak another era by now.
  const isRefused = reason === 'upstream_refused' && !sent
  if (isGone || isRefused || reason === 'session_lost') upstreamSessions.retire(caller, bound)
  if (suspicious.has(reason)) suspect(bound.replica, reason)
}

/** Leaves the same traces of an attempt and its failure as `sendOver`, for attempts that faults end before `sendOver`. */
export class FaultedAttempts {
  readonly #parts: LookParts

  constructor(parts: LookParts) {
    this.#parts = parts
  }

  /** False when it is not counted: it was not sent, and there is no upstream session that it could have been sent over. */
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

/** The error when somebody's time was over before the process was up: it says nothing of how the process treats calls. */
export function whileStarting(error: GatewayError, starting: Starting | undefined): GatewayError {
  if (starting === undefined || error.reason === 'cancelled') return error
  const { told, failure: before } = starting
  const message = `${error.message}; ${told}${before === undefined ? '' : `; before, ${before.message}`}`
  const next = { ...error, message, retryAfterMs: error.retryAfterMs ?? ASK_AGAIN_MS }
  return error.reason === 'deadline_exceeded' ? { ...next, notStarted: true } : next
}

/** A call's way to its server: over its caller's upstream session, which is begun if need be. */
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
      // The call itself was not sent, whatever became of the handshake.
      return { kind: 'failed', error: { ...(error as GatewayError), sent: false } }
    }
    return exchange(opened, call)
  }

  return (call) => {
    const bound = upstreamSessions.current(call.caller, call.replica)
    return bound === undefined ? sendFirst(call) : exchange(bound, call)
  }
}

/** Counts what is sent again: an id must not come twice in one upstream session. */
let resent = 0

/** Sends a call as its server has to see it: with the time that is left, and under an id that is new. */
export function exchangeOver(upstreamSession: UpstreamSession, call: Call, clock: Clock): Promise<Outcome> {
  const traced = call.record.span === undefined ? call : stamped(call)
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
