import type { Call, CallResult, Outcome, Service } from '../../mesh/call.ts'
import type { Fate, InjectedFault } from '../../mesh/injected.ts'
import type { Signal } from '../../mesh/cancel.ts'
import { verdictOf } from '../../mesh/classify.ts'
import { type Clock, LONGEST_TIMER_MS, type Millis } from '../../mesh/clock.ts'
import { gatewayError, type GatewayError } from '../../mesh/errors.ts'
import { replaceAt } from '../../protocol/json-span.ts'
import { resultText } from '../../protocol/jsonrpc.ts'
import type { Canaries, Corruptions } from '../accounting/canaries.ts'
import { countHit, type FaultCounts } from '../accounting/counts.ts'
import { digest } from '../decide/decide.ts'
import { ENDED, type RawReply, type Injection, type Side, type FaultEnvironment } from '../fault.ts'
import type { DecisionEntry } from '../journal/entry.ts'
import type { Release } from '../kill/kill-switch.ts'
import type { ArmedFault, Uses } from './armed-fault.ts'

/** Parts that all injections share. */
export interface InjectionParts {
  readonly clock: Clock
  readonly faultEnvironment: FaultEnvironment
  readonly corruptions: Corruptions<AppliedInjection>
  readonly canaries: Canaries
}

/** One armed fault acting on one call. */
export class AppliedInjection implements Injection {
  readonly fault: string
  readonly side: Side
  readonly clock: Clock
  readonly faultEnvironment: FaultEnvironment
  readonly released: Release
  readonly armed: ArmedFault
  readonly entry: DecisionEntry
  readonly injected: InjectedFault
  /** The fault's counts: of agents' calls, or of the gateway's own requests. */
  readonly counts: FaultCounts
  /** Counts for the fault's limits, in the arm of the call. */
  readonly #uses: Uses
  /** The attempt the injection may end in place of the server; undefined on the agent's side. */
  attempt: StandInAttempt | undefined
  /** True when the injection itself made the final error of the call, instead of passing an error on. */
  madeError = false
  readonly #begunAt: Millis
  /** True once the injection has had an effect on the call. */
  #tookEffect = false
  #fate: Fate | undefined
  /**
   * Number of current waits that hold the call, their start, and how long earlier waits held the call, in milliseconds.
   */
  #holds = 0
  #heldSince: Millis = 0
  #heldMs: Millis = 0
  #hasHeld = false
  #values: readonly string[] | undefined
  readonly #parts: InjectionParts
  readonly #key: string
  #hasPlace = true
  /** True while the injection counts against `maxConcurrent`, although the call may be over. */
  #keepsPlace = false
  #over = false

  /** `key`: the key of the injection's random draws. */
  constructor(
    armed: ArmedFault,
    { tally, uses }: { readonly tally: FaultCounts; readonly uses: Uses },
    key: string,
    entry: DecisionEntry,
    injected: InjectedFault,
    parts: InjectionParts,
  ) {
    this.fault = armed.fault.name
    this.side = armed.fault.side
    this.clock = parts.clock
    this.faultEnvironment = parts.faultEnvironment
    this.released = armed.released
    this.armed = armed
    this.counts = tally
    this.#uses = uses
    this.entry = entry
    this.injected = injected
    this.#parts = parts
    this.#key = key
    this.#begunAt = parts.clock.now()
  }

  draw(purpose: string): number {
    return this.armed.random(this.#key, `${this.fault}/${purpose}`)
  }

  /** True while the injection has no fate. */
  get isOpen(): boolean {
    const { status } = this.injected
    return this.#fate === undefined && (status === 'applied' || status === 'not_reached')
  }

  /** True when the injection had an effect on the call. */
  get tookEffect(): boolean {
    return this.#tookEffect && this.injected.status === 'applied'
  }

  /** How long the injection has held the call until now, in milliseconds. */
  get heldMs(): Millis {
    return this.#heldMs + (this.#holds > 0 ? this.clock.now() - this.#heldSince : 0)
  }

  /** True when the injection had an effect on the call without ever holding it. */
  get bends(): boolean {
    return this.tookEffect && !this.#hasHeld
  }

  /** True when the injection has held the call for at least half of the time since the draw. */
  get heldMost(): boolean {
    return this.tookEffect && this.#hasHeld && this.heldMs * 2 >= this.clock.now() - this.#begunAt
  }

  pause(ms: Millis, call: Call, sent = true): Promise<Paused> {
    return this.#delaying(call, pause(this.clock, ms, this.released, call.signal), sent)
  }

  delaying<Settled>(call: Call, settled: Promise<Settled>): Promise<Settled> {
    return this.#delaying(call, settled, true)
  }

  #delaying<Settled>(call: Call, settled: Promise<Settled>, sent: boolean): Promise<Settled> {
    this.#tookEffect = true
    this.#hasHeld = true
    this.attempt?.hold(call, sent)
    if (this.#holds++ === 0) this.#heldSince = this.clock.now()
    return settled.finally(() => {
      if (--this.#holds === 0) this.#heldMs += this.clock.now() - this.#heldSince
    })
  }

  delayed(ms: Millis): void {
    this.#tookEffect = true
    // No hold lasts longer than the fault.
    this.#heldMs += Math.min(ms, Math.max(0, this.armed.endsAt - this.clock.now()))
  }

  keepsPlace(until: Promise<void>): void {
    this.#keepsPlace = true
    void until.then(() => {
      this.#keepsPlace = false
      if (this.#over) this.leave()
    })
  }

  reply(call: Call, raw: RawReply): Outcome {
    this.#tookEffect = true
    const outcome = this.faultEnvironment.read(call, raw)
    if (outcome.kind === 'answered') {
      this.#parts.corruptions.mark(this, outcome.result)
      this.entry.after = digest(outcome.result.text)
    }
    if (this.side === 'upstream') return outcome
    return { ...outcome, wire: { status: raw.status, headers: raw.headers, body: raw.body } }
  }

  disconnect(_: Call, message: string): Outcome {
    this.#tookEffect = true
    const error = gatewayError('upstream_disconnected', message, { sent: true })
    return this.side === 'upstream'
      ? { kind: 'failed', error }
      : { kind: 'failed', error, wire: { end: 'reset' } }
  }

  change(outcome: Outcome, result: unknown): Outcome {
    if (outcome.kind !== 'answered') return outcome
    // A fault already stopped must not take effect.
    if (this.released.aborted) {
      this.notReached(ENDED)
      return outcome
    }
    this.#tookEffect = true
    const changed = withResult(outcome.result, result)
    this.entry.before ??= digest(outcome.result.text)
    this.entry.after = digest(changed.text)
    this.#parts.corruptions.mark(this, changed, outcome.result)
    this.#values = this.#parts.canaries.plant(this.entry, outcome.result.value.result, result)
    return { ...outcome, result: changed, verdict: verdictOf(changed.value) }
  }

  note(facts: Readonly<Record<string, unknown>>): void {
    this.#tookEffect = true
    this.#write(facts)
  }

  notApplicable(why: string): void {
    this.#write({ why })
    if (this.#fate !== undefined || this.injected.status !== 'applied') return
    this.entry.status = 'not_applicable'
    this.injected.status = 'not_applicable'
    this.counts.injected--
    this.counts.hits--
    this.#uses.hits--
    this.counts.notApplicable++
  }

  notReached(why: string): void {
    this.#write({ why })
    if (this.#fate !== undefined || this.injected.status !== 'applied') return
    this.entry.status = 'not_reached'
    this.#missed()
  }

  /** Counts the injection as not reached: it no longer counts against `maxInjections`. */
  #missed(): void {
    this.injected.status = 'not_reached'
    this.counts.hits--
    this.#uses.hits--
    this.counts.notReached++
  }

  #write(facts: Readonly<Record<string, unknown>>): void {
    this.entry.note = { ...this.entry.note, ...facts }
    this.injected.note = this.entry.note
  }

  /** Sets the final fate, regardless of the rest of the attempt. */
  settle(fate: Fate): void {
    if (!this.isOpen) return
    this.#fate = fate
    this.entry.fate = fate
    if (fate !== 'not_reached') countHit(this.counts, fate, this.heldMs)
    else if (this.injected.status === 'applied') this.#missed()
  }

  /**
   * Returns the values that the fault put into its last changed result, and forgets them: the injection lives as long
   * as its journal entry. Undefined when unknown.
   */
  takeValues(): readonly string[] | undefined {
    const values = this.#values
    this.#values = undefined
    return values
  }

  /** Stops counting against `maxConcurrent`, unless `keepsPlace` has postponed this. */
  leave(): void {
    if (this.#keepsPlace) return
    if (this.#hasPlace) this.#uses.concurrent--
    this.#hasPlace = false
  }

  /** Undoes the injection before any effect. */
  withdraw(): void {
    this.leave()
    this.counts.injected--
    this.counts.hits--
    this.#uses.hits--
    this.entry.status = 'error'
    this.injected.status = 'not_applicable'
  }

  /**
   * Completes the injection's journal entry with the outcome of the attempt. Returns false when the entry was complete
   * before.
   */
  end(outcome: string | undefined): boolean {
    this.leave()
    if (this.#over) return false
    this.#over = true
    if (!this.#tookEffect && this.injected.status === 'applied')
      this.notReached('the call was over before the fault took effect')
    if (this.entry.status === 'pending') this.entry.status = 'applied'
    if (this.released.reason !== undefined) this.entry.released = this.released.reason
    if (outcome !== undefined) this.entry.outcome = outcome
    return true
  }

  memory<State extends object>(key: string, create: () => State): State {
    return this.armed.memory(key, create)
  }
}

/** The reason why a pause ended. */
type Paused = 'over' | 'released' | 'aborted'

/** Waits until the time is over, or either signal aborts; leaves neither timer nor listener behind. */
function pause(clock: Clock, ms: Millis, released: Signal, aborted: Signal): Promise<Paused> {
  if (released.aborted) return Promise.resolve('released')
  if (aborted.aborted) return Promise.resolve('aborted')
  return new Promise((resolve) => {
    const end = (how: Paused) => {
      cancel()
      released.removeEventListener('abort', onRelease)
      aborted.removeEventListener('abort', onAbort)
      resolve(how)
    }
    const onRelease = () => end('released')
    const onAbort = () => end('aborted')
    const cancel = clock.after(Math.min(ms, LONGEST_TIMER_MS), () => end('over'))
    released.addEventListener('abort', onRelease)
    aborted.addEventListener('abort', onAbort)
  })
}

/** Returns a reply with another result. The rest of a response stays as written; an error becomes a response. */
function withResult({ text, value, status }: CallResult, result: unknown): CallResult {
  if ('result' in value) {
    return { text: replaceAt(text, ['result'], result), value: { ...value, result }, status }
  }
  const { id } = value
  return {
    text: resultText(id as string | number, JSON.stringify(result)),
    value: { jsonrpc: '2.0', id, result },
    status,
  }
}

/**
 * Record of an attempt that faults hold or end before the attempt reaches the server. The attempt is counted like a
 * real attempt, so that the agent's error and the health of the server show the same. The outcome says whether the
 * attempt counts as sent.
 */
export class StandInAttempt {
  readonly #environment: Pick<FaultEnvironment, 'beginAttempt' | 'suspect'>
  /** True while the record of the call counts this attempt. */
  #isCounted = false
  #cameThrough = false
  /**
   * The error of the real attempt, if the server failed. Only the error is kept, because this object lives as long as
   * its journal entry.
   */
  #realError: GatewayError | undefined

  constructor(environment: Pick<FaultEnvironment, 'beginAttempt' | 'suspect'>) {
    this.#environment = environment
  }

  /** Counts an attempt that a fault holds: as sent to a slow server or, if `sent` is false, as not sent yet. */
  hold(call: Call, sent: boolean): void {
    this.#begin(call, sent)
  }

  /** Returns `next`, with the attempt counted as real once a call is sent through it. */
  before(next: Service): Service {
    return (call) => {
      // The transport counts the attempt itself, so the earlier count is taken back.
      if (this.#isCounted) call.record.attempts--
      this.#isCounted = false
      this.#cameThrough = true
      return next(call).then((outcome) => {
        this.#realError = outcome.kind === 'failed' ? outcome.error : undefined
        return outcome
      })
    }
  }

  /** Counts the attempt with the faults' outcome. After an error made by a fault, the gateway suspects the server. */
  end(call: Call, outcome: Outcome): void {
    const error = outcome.kind === 'answered' ? undefined : outcome.error
    this.#begin(call, error?.sent ?? true)
    if (error !== undefined && error !== this.#realError) this.#environment.suspect(call, error)
  }

  #begin(call: Call, sent: boolean): void {
    if (this.#isCounted || this.#cameThrough) return
    this.#isCounted = this.#environment.beginAttempt(call, sent)
  }
}
