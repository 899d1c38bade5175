import { askedMs } from '../../mesh/asking.ts'
import type { Call, CallRecord, Outcome, Service } from '../../mesh/call.ts'
import type { Clock, Millis } from '../../mesh/clock.ts'
import type { Kit } from '../../mesh/policy.ts'
import { type BreakerOwner, type BreakerSnapshot, refusedOpen, refusedProbing } from './facts.ts'
import { judge, type Judgement, Tally } from './health.ts'
import type { BreakerConfig } from './schema.ts'
import { Machine, type Probe, type Trial } from './state-machine.ts'

/** What can be asked of a breaker by hand. */
export type BreakerOrder = 'open' | 'close' | 'reset'

/**
 * How often in a row it believes that its server is back before a call has succeeded: one that takes connections and
 * fails every call would otherwise never be left in peace.
 */
const MOST_EARLY = 3

/** When a replica was last found to be reachable again, on the monotonic clock. */
type BackAt = (replica: number) => Millis

/**
 * One breaker: exact windows say when to open, opossum holds the state. Time is looked at when a call comes, so
 * that it needs no timer, and no `close()` either: chains of an older generation may go on using it.
 */
export class Breaker {
  readonly #config: BreakerConfig
  readonly #clock: Clock
  /** Changes places with its endpoint. */
  readonly #owner: { -readonly [Key in keyof BreakerOwner]: BreakerOwner[Key] }
  readonly #tally: Tally
  readonly #machine: Machine
  /** Whether the failure that was counted last was one of the connection, as when the server is down. */
  #wasOutage = false
  /** Times that it believed that its server is back since a call has succeeded. */
  #early = 0

  constructor(config: BreakerConfig, kit: Pick<Kit, 'clock' | 'dice' | 'emit'>, owner: BreakerOwner) {
    this.#config = config
    this.#clock = kit.clock
    this.#owner = { ...owner }
    this.#tally = new Tally(config)
    this.#machine = new Machine(config, kit, this.#owner, () => this.#tally.reset())
  }

  /** Passes a call on, or rejects it. */
  run(call: Call, next: Service, backAt: BackAt): Promise<Outcome> {
    const machine = this.#machine
    if (machine.state !== 'closed') return this.#guard(call, next, backAt)
    const { record } = call
    const { generation } = machine
    const startedAt = this.#clock.now()
    const askedBefore = askedMs(record, startedAt)
    return next(call).then((outcome) => {
      // What was admitted before a change of state says nothing of the time after it.
      if (generation !== machine.generation) return outcome
      const now = this.#clock.now()
      const ranMs = ran(record, startedAt, askedBefore, now)
      const judgement = judge(outcome, call, ranMs)
      this.#note(judgement, outcome)
      const trip = this.#tally.add(judgement, ranMs, now)
      if (trip !== undefined) machine.open(trip)
      return outcome
    })
  }

  /**
   * Takes it by hand: `open` holds it open until it is closed or reset, `close` closes it with empty windows,
   * `reset` makes it as if it were new. After the last two it decides by itself again.
   */
  force(order: BreakerOrder): void {
    if (order === 'open') this.#machine.hold()
    else this.#machine.close(order === 'reset')
  }

  /** Whether it was opened by hand, and has not been closed since. */
  get isHeld(): boolean {
    return this.#machine.manual
  }

  /** Its endpoint is that of another replica now. */
  moved(replica: number): void {
    this.#owner.replica = replica
  }

  snapshot(): BreakerSnapshot {
    const { state, trip, manual, since, openForMs, generation } = this.#machine
    const now = this.#clock.now()
    const timed = state === 'open' && !manual
    return {
      state,
      since: this.#clock.wall() - (now - since),
      dimension: trip?.dimension,
      why: trip?.why,
      manual,
      availability: this.#tally.availability(now),
      correctness: this.#tally.correctness(now),
      slow: this.#tally.slow(now),
      consecutive: this.#tally.consecutive,
      openForMs: timed ? openForMs : undefined,
      nextProbeInMs: timed ? this.#machine.waitMs(now) : undefined,
      generation,
    }
  }

  /** The way of a call that finds it open or half-open. */
  #guard(call: Call, next: Service, backAt: BackAt): Promise<Outcome> {
    const machine = this.#machine
    const waitMs = machine.waitMs(this.#clock.now())
    if (machine.state === 'open' && waitMs > 0) {
      if (!this.#isBack(backAt)) return Promise.resolve(refusedOpen(this.#owner, machine.trip, waitMs))
      this.#early++
      if (this.#wasOutage) {
        // All that was against the server was that it was down: nothing is left to be tried.
        machine.recover('reachable again')
        return this.run(call, next, backAt)
      }
    }
    if (machine.state === 'open') machine.halfOpen()
    const { trial } = machine
    const probe = trial?.begin(call.record)
    if (trial === undefined || probe === undefined)
      return Promise.resolve(refusedProbing(this.#owner, machine.trip, this.#config.probeTimeout))
    return this.#try(call, next, trial, probe)
  }

  /** Whether the server came back since the breaker opened, before the time that was chosen without knowing. */
  #isBack(backAt: BackAt): boolean {
    const { manual, since } = this.#machine
    return !manual && this.#early < MOST_EARLY && backAt(this.#owner.replica) >= since
  }

  #note(judgement: Judgement, outcome: Outcome): void {
    if (judgement === 'neutral' || judgement === 'caller_timeout') return
    this.#wasOutage = judgement === 'failed' && isOutage(outcome)
    if (judgement !== 'failed') this.#early = 0
  }

  #try(call: Call, next: Service, trial: Trial, probe: Probe): Promise<Outcome> {
    const { record } = call
    const startedAt = this.#clock.now()
    const askedBefore = askedMs(record, startedAt)
    return next(call).then((outcome) => {
      const ranMs = ran(record, startedAt, askedBefore, this.#clock.now())
      const judgement = judge(outcome, call, ranMs)
      this.#note(judgement, outcome)
      const fault = this.#tally.faultOf(judgement, ranMs)
      if (fault !== undefined) trial.failed(probe, fault)
      else if (judgement === 'neutral' || judgement === 'caller_timeout') trial.neutral(probe)
      else trial.passed(probe)
      return outcome
    })
  }
}

/** Whether a call ended as calls do when there is nobody at the other end. */
function isOutage(outcome: Outcome): boolean {
  if (outcome.kind !== 'failed') return false
  const { reason } = outcome.error
  return reason === 'upstream_unavailable' || reason === 'upstream_disconnected'
}

/** How long an attempt ran, in milliseconds, without the time for which the agent was asked. */
function ran(record: CallRecord, startedAt: Millis, askedBefore: Millis, now: Millis): Millis {
  return now - startedAt - (askedMs(record, now) - askedBefore)
}
