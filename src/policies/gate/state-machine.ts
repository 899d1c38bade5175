import type { Call, Outcome, Service } from '../../mesh/call.ts'
import { isConnectionLost } from '../../mesh/classify.ts'
import type { Cancel, Clock, Millis } from '../../mesh/clock.ts'
import { type GatewayError, gatewayError, type PolicyReason, type Reason } from '../../mesh/errors.ts'
import { Fact } from '../../mesh/record.ts'
import type { PolicyContext, Scope } from '../../mesh/policy.ts'
import { roundedDuration } from '../../units/duration.ts'
import { givenUp } from '../state/given-up.ts'
import { Line, type Waiter } from './line.ts'
import { Patience, type PatienceSnapshot, SHORT_PATIENCE_MS } from './patience.ts'

export const serverLost = {
  name: 'server_lost',
  code: 1503,
  retryable: true,
  about:
    'The server is lost, and the call may not wait: too many calls wait already, or the server has been gone too long.',
} as const satisfies PolicyReason

export const gateWait = new Fact<number>(0, {
  about: 'How long the call waited for its server to return, in milliseconds.',
  log: 'gateWaitMs',
  attribute: 'breakwater.gate.wait_ms',
  event: () => ({ decision: 'held' }),
})

export const states = ['closed', 'open', 'half_open'] as const
type GateState = (typeof states)[number]

/** See the schema of `gate`. Times are in milliseconds. */
interface GateSettings {
  readonly patience: Millis
  readonly maxPatience: Millis
  readonly giveUp: Millis
  readonly queue: number
  /** Maximum total size of the waiting requests, in bytes. */
  readonly maxWaiting: number
}

/** The part of the registry a gate uses: see `Scope`. */
type Endpoints = Pick<Scope, 'replicas' | 'isLost' | 'reached'>

/** Pauses between two calls that try a lost server, in milliseconds: the first, the growth factor, and the longest. */
const FIRST_PAUSE_MS: Millis = 50
const PAUSE_GROWTH = 1.5
const LONGEST_PAUSE_MS: Millis = 500

/** A released call that has not failed after this long, in milliseconds, counts as accepted, even without an answer. */
const PROVEN_MS: Millis = 200

/**
 * From this attempt on, a call may be the cause of its server's crashes. Such a suspect is released last, and is alone
 * until it has run for `PROVEN_MS` without failure.
 */
const SUSPICIOUS_ATTEMPT = 3

/** While a suspect waits, other calls go first for this long, in milliseconds. Then the suspect goes before them. */
const SUSPECT_PAUSE_MS: Millis = 1_000

/**
 * A loss this soon after a good probe, in milliseconds and without an answer in between, continues the earlier loss.
 */
const SAME_LOSS_MS: Millis = 5_000

/** The value of `tool` in a gate's snapshot, which the admin API lists among the breakers. */
const ALL_TOOLS = '*'

/** A gate as the admin API shows it. */
export interface GateSnapshot {
  /** A gate covers all tools of its server. */
  readonly tool: typeof ALL_TOOLS
  readonly state: GateState
  /** When the state began, in milliseconds of the Unix epoch. */
  readonly since: Millis
  readonly why: string | undefined
  readonly waiting: number
  readonly waitingBytes: number
  /** Calls released, with an outcome still unknown. */
  readonly released: number
  readonly patience: PatienceSnapshot
}

export class Gate {
  state: GateState = 'closed'
  readonly #clock: Clock
  readonly #emit: PolicyContext['emit']
  readonly #owner: { readonly set: string; readonly server: string }
  readonly #line: Line
  readonly #patience: Patience
  readonly #giveUpMs: Millis
  #why: string | undefined
  #since: Millis
  /** When the present loss began; undefined unless the server is known to be lost. */
  #lostSince: Millis | undefined
  /** Whether any replica can be probed. */
  #isProbed = false
  /** When a probe reached the server after the latest loss. */
  #reachableAt: Millis | undefined
  /** When the latest call was sent that has proved the server is up. */
  #provenAt: Millis = -Infinity
  /** Released calls with an unknown outcome, and their maximum. */
  #released = 0
  #allowance = 1
  /** Whether a suspect is released, so that no other call may be released. */
  #isAlone = false
  /** When the next suspect's wait for its turn began: when a suspect was over, or when the gate became half-open. */
  #suspectedAt: Millis = -Infinity
  /** Losses in a row without an answer in between, and when the next call may try. */
  #losses = 0
  #nextAt: Millis = -Infinity
  #timer: Cancel | undefined
  /** The number of losses, to ignore results of calls and probes from before the latest loss. */
  #generation = 0

  constructor(
    { queue, maxWaiting, patience, maxPatience, giveUp }: GateSettings,
    { clock, emit }: Pick<PolicyContext, 'clock' | 'emit'>,
    { set, server }: Pick<Scope, 'set' | 'server'>,
  ) {
    this.#clock = clock
    this.#emit = (event) => emit(event)
    this.#owner = { set, server }
    this.#line = new Line(queue, maxWaiting)
    this.#patience = new Patience(patience, maxPatience)
    this.#giveUpMs = giveUp
    this.#since = clock.now()
  }

  get waiting(): number {
    return this.#line.size
  }

  /** Passes a call on, at once or when the server is back; or rejects the call. */
  run(call: Call, next: Service, endpoints: Endpoints): Promise<Outcome> {
    if (this.state === 'closed') return this.#send(call, next, endpoints)
    // All tries of a call share the patience of one try.
    const patienceMs = this.#patienceWith(call) - gateWait.of(call.record)
    return patienceMs <= 0
      ? this.#tryOnce(call, next, endpoints)
      : this.#wait(call, next, endpoints, patienceMs)
  }

  snapshot(): GateSnapshot {
    return {
      tool: ALL_TOOLS,
      state: this.state,
      since: this.#clock.wall() - (this.#clock.now() - this.#since),
      why: this.#why,
      waiting: this.#line.size,
      waitingBytes: this.#line.bytes,
      released: this.#released,
      patience: this.#patience.snapshot(),
    }
  }

  /** Returns how long a new call may wait, in milliseconds. */
  #patienceWith({ record, method }: Call): Millis {
    const lostForMs = this.#lostSince === undefined ? 0 : this.#clock.now() - this.#lostSince
    if (this.state === 'open' && lostForMs >= this.#giveUpMs) return 0
    // Lists wait only briefly, because clients request them one after another before their first tool call.
    const isShort = method.endsWith('/list') || record.hasAlternative?.('server') === true
    return Math.min(this.#patience.ms, isShort ? SHORT_PATIENCE_MS : Infinity)
  }

  #send(call: Call, next: Service, endpoints: Endpoints): Promise<Outcome> {
    const { record } = call
    const begunAt = this.#clock.now()
    const waitedBefore = record.waitedMs
    return next(call).then((outcome) => {
      // The call may have waited for a slot before it was sent. Parallel tries all add to `waitedMs`, so the sum may
      // exceed the time passed.
      const sentAt = Math.min(this.#clock.now(), begunAt + record.waitedMs - waitedBefore)
      if (isLost(outcome)) this.#lost(sentAt, outcome.error, record.replica, endpoints)
      else if (isProof(outcome)) this.#there(sentAt)
      return outcome
    })
  }

  /**
   * Sends a first attempt at once: the server may be back, and a refused connection costs a millisecond. Rejects later
   * attempts, which would only add cost.
   */
  #tryOnce(call: Call, next: Service, endpoints: Endpoints): Promise<Outcome> {
    if (call.attempt === 1) return this.#send(call, next, endpoints)
    return Promise.resolve(
      this.#refuse(`the call has waited for ${roundedDuration(gateWait.of(call.record))}`),
    )
  }

  #wait(call: Call, next: Service, endpoints: Endpoints, patienceMs: Millis): Promise<Outcome> {
    const since = this.#clock.now()
    const { signal, record, countsAs, message, attempt } = call
    // An aborted signal fires no more events: the call would wait, and then be sent although its caller has left.
    if (signal.aborted) return Promise.resolve(this.#left(call))
    return new Promise((resolve) => {
      const end = (outcome: Outcome | Promise<Outcome>) => {
        signal.removeEventListener('abort', gone)
        cancel()
        resolve(outcome)
      }
      const waited = () => {
        const ms = this.#clock.now() - since
        record.waitedMs += ms
        gateWait.note(record, gateWait.of(record) + ms)
      }
      const waiter: Waiter = {
        tenant: countsAs,
        bytes: message.text.length,
        isSuspect: attempt >= SUSPICIOUS_ATTEMPT,
        go: () => {
          waited()
          end(this.#sendReleased(waiter, call, next, endpoints))
        },
        displaced: () => {
          waited()
          end(this.#refuse('calls of other tenants wait for it'))
        },
      }
      const gone = () => {
        this.#line.remove(waiter)
        waited()
        end(this.#left(call))
      }
      const cancel = this.#clock.after(patienceMs, () => {
        this.#line.remove(waiter)
        waited()
        end(this.#tryOnce(call, next, endpoints))
      })
      const full = this.#line.add(waiter)
      if (full !== undefined) return end(this.#refuse(full))
      signal.addEventListener('abort', gone)
      this.#pump()
    })
  }

  /** Sends a call that has waited. Two more calls may go once the call has proved that the server is up. */
  async #sendReleased(waiter: Waiter, call: Call, next: Service, endpoints: Endpoints): Promise<Outcome> {
    this.#released++
    if (waiter.isSuspect) this.#isAlone = true
    const generation = this.#generation
    let isProven = false
    const proven = () => {
      if (isProven || generation !== this.#generation) return
      isProven = true
      this.#released--
      this.#allowance++
      // A call that crashes its server does so at once, so this suspect is cleared.
      if (waiter.isSuspect) this.#suspectIsOver()
      this.#pump()
    }
    const cancel = this.#clock.after(PROVEN_MS, proven)
    try {
      const outcome = await this.#send(call, next, endpoints)
      if (isProof(outcome)) proven()
      return outcome
    } finally {
      cancel()
      // A call from before the latest loss no longer counts, however long it runs.
      if (!isProven && generation === this.#generation) {
        this.#released--
        if (waiter.isSuspect) this.#suspectIsOver()
      }
      this.#pump()
    }
  }

  #suspectIsOver(): void {
    this.#isAlone = false
    this.#suspectedAt = this.#clock.now()
  }

  /** Notes that a call sent at `sentAt` has proved the server is up. */
  #there(sentAt: Millis): void {
    if (sentAt > this.#provenAt) this.#provenAt = sentAt
    if (this.state === 'closed') {
      this.#losses = 0
      if (this.#lostSince !== undefined) this.#over(this.#reachableAt ?? this.#since)
      return
    }
    if (this.#lostSince !== undefined && sentAt < this.#lostSince) return
    this.#over(this.#reachableAt ?? sentAt)
    this.#losses = 0
    this.#nextAt = -Infinity
    this.#release('it has answered a call')
  }

  /** Notes that the loss was over at `at`, at the latest. */
  #over(at: Millis): void {
    if (this.#lostSince !== undefined) this.#patience.note(at - this.#lostSince)
    this.#lostSince = undefined
  }

  /**
   * Notes that a call sent at `sentAt` found no server. Does nothing if a call sent later succeeded, or another replica
   * is up. Overlapping losses count as one.
   */
  #lost(
    sentAt: Millis,
    { message, retryAfterMs = 0 }: GatewayError,
    replica: number | undefined,
    endpoints: Endpoints,
  ): void {
    if (sentAt <= this.#provenAt) return
    for (let other = 0; other < endpoints.replicas && endpoints.replicas > 1; other++)
      if (other !== replica && !endpoints.isLost(other)) return
    const now = this.#clock.now()
    this.#allowance = 1
    if (this.state === 'open') return
    const wasClosed = this.state === 'closed'
    if (wasClosed && this.#lostSince !== undefined && now - this.#since >= SAME_LOSS_MS)
      this.#over(this.#since)
    this.#lostSince ??= now
    const pauseMs = Math.min(LONGEST_PAUSE_MS, FIRST_PAUSE_MS * PAUSE_GROWTH ** this.#losses++)
    // For a crashed process, `retryAfterMs` is the time until its restart.
    this.#nextAt = now + Math.max(pauseMs, retryAfterMs)
    this.#generation++
    this.#released = 0
    this.#isAlone = false
    this.#enter('open', message, wasClosed)
    this.#reachableAt = undefined
    this.#watch(endpoints)
  }

  /** Waits for a successful probe of a replica; without a replica to probe, a call has to try. */
  #watch(endpoints: Endpoints): void {
    if (this.state !== 'open') return
    const { replicas, reached } = endpoints
    const generation = this.#generation
    let isProbed = false
    for (let replica = 0; replica < replicas; replica++) {
      const back = reached(replica)
      if (back === undefined) continue
      isProbed = true
      void back.then((isThere) => {
        if (generation !== this.#generation || this.#reachableAt !== undefined) return
        // A reload has replaced the lost server by another.
        if (!isThere) return this.#watch(endpoints)
        this.#reachableAt = this.#clock.now()
        this.#release('it takes requests again')
      })
    }
    this.#isProbed = isProbed
    if (!isProbed) this.#wake()
  }

  /** Releases calls again, one by one at first. */
  #release(why: string): void {
    if (this.state === 'closed') return
    this.#enter('half_open', why, false)
    this.#pump()
  }

  /** Releases as many calls as allowed. Closes the gate when no call waits any more. */
  #pump(): void {
    if (this.state !== 'half_open') return
    if (this.#nextAt > this.#clock.now()) return this.#wake()
    while (this.#isReleasing && !this.#isAlone) {
      // New calls may arrive all the time: a suspect then gets its turn, once the outcome of all earlier calls is
      // known.
      const isTurn = this.#line.suspects > 0 && this.#clock.now() - this.#suspectedAt >= SUSPECT_PAUSE_MS
      if (this.#released >= (isTurn ? 1 : this.#allowance)) break
      const waiter = isTurn ? this.#line.nextSuspect() : (this.#line.next() ?? this.#alone())
      if (waiter === undefined) break
      waiter.go()
    }
    const isBack = this.#reachableAt !== undefined || this.#lostSince === undefined
    if (!this.#isReleasing || this.#line.size > 0 || !isBack) return
    // Only an answer shows the end of the loss: some servers accept requests and answer none.
    this.#enter('closed', this.#why, true)
  }

  /** Returns the next suspect when no released call is pending; otherwise undefined. */
  #alone(): Waiter | undefined {
    return this.#released === 0 ? this.#line.nextSuspect() : undefined
  }

  /** Read again after each release, because a released call may fail at once and change the state. */
  get #isReleasing(): boolean {
    return this.state === 'half_open'
  }

  /** Checks again when the next call may try. */
  #wake(): void {
    if (this.#timer !== undefined) return
    this.#timer = this.#clock.after(Math.max(1, this.#nextAt - this.#clock.now()), () => {
      this.#timer = undefined
      if (this.#nextAt > this.#clock.now()) return this.#wake()
      if (this.state === 'open' && !this.#isProbed) this.#enter('half_open', this.#why, false)
      this.#pump()
    })
  }

  #enter(state: GateState, why: string | undefined, isTold: boolean): void {
    this.#why = why
    if (this.state === state) return
    this.state = state
    this.#since = this.#clock.now()
    if (state === 'half_open') this.#suspectedAt = this.#since
    if (!isTold) return
    this.#emit({ type: 'gate', ...this.#owner, detail: { state, why, waiting: this.#line.size } })
  }

  #left(call: Call): Outcome {
    return givenUp(call, `cancelled while it waited for ${this.#owner.server} to be back`)
  }

  #refuse(why: string): Outcome {
    const message = `${this.#owner.server} is lost (${this.#why}), and ${why}`
    const error = gatewayError(serverLost, message, { retryAfterMs: LONGEST_PAUSE_MS })
    return { kind: 'rejected', error, by: 'gate' }
  }
}

/**
 * Returns whether a call found no server. A process that is starting, or failed to start (`notStarted`), does not
 * count.
 */
function isLost(outcome: Outcome): outcome is Outcome & { kind: 'failed' } {
  return outcome.kind === 'failed' && outcome.error.notStarted !== true && isConnectionLost(outcome)
}

/** Reasons of failures that only a running server can cause. */
const signsOfLife: ReadonlySet<string> = new Set<Reason>([
  'bad_reply',
  'incorrect_result',
  'reply_too_large',
  'session_lost',
  'upstream_forbidden',
  'upstream_rate_limited',
  'upstream_refused',
  'upstream_status',
  'upstream_unauthorized',
])

function isProof(outcome: Outcome): boolean {
  return outcome.kind === 'answered' || (outcome.kind === 'failed' && signsOfLife.has(outcome.error.reason))
}
