import type { ServerHealthConfig } from '../../config/schema/health-schema.ts'
import type { Clock, Millis } from '../../mesh/clock.ts'
import { roundedDuration } from '../../units/duration.ts'
import type { Probe, ProbeFailure, ProbeStep } from './probe.ts'

/**
 * `unknown` until the first probe; `suspicious` while probes fail, or are slow, and are not yet enough for an incident;
 * `failing` from then on, up to the first probe that is well.
 */
export type HealthState = 'unknown' | 'well' | 'suspicious' | 'failing'

/** The finding about a server after a probe. */
export interface ProbeResult {
  readonly state: HealthState
  /** Why it is not well, by this probe. */
  readonly failure: ProbeFailure | undefined
  /** When the trouble began that it is in, by the first sign of it, in milliseconds since the Unix epoch. */
  readonly since: Millis | undefined
  /** The same on the monotonic clock, by which it is measured how long the trouble takes. */
  readonly sinceNow: Millis | undefined
  /**
   * Earliest that the trouble can have begun, on the monotonic clock: when a probe found it well last, where a probe was the
   * first sign; else as `sinceNow`.
   */
  readonly notBeforeNow: Millis | undefined
  /** When a probe found it well last; undefined: never. */
  readonly lastWellAt: Millis | undefined
}

/** How much more often it is looked at while it is in doubt, and how often at most, in milliseconds. */
const IN_DOUBT = 6
const LEAST_PAUSE_MS: Millis = 1_000

/** Probes that are looked at for slow ones: more than one of 20 is more than 5 %. */
const WINDOW = 20

/** Probes that a baseline is made of, at least and at most. */
const LEAST_LEARNED = 5
const MOST_LEARNED = 50

/** A step that is slower by less than this is not slow, whatever the baseline is, in milliseconds. */
const LEAST_MARGIN_MS: Millis = 100

/** The steps that are measured: how long it takes to open a session depends on whether a program has to be started for it. */
const measured = ['ping', 'list', 'tool'] as const satisfies readonly ProbeStep[]
export type MeasuredStep = (typeof measured)[number]

/** The known durations of one step. */
class Pace {
  latestMs: Millis | undefined
  #baselineMs: Millis | undefined
  readonly #latest: Millis[] = []
  readonly #learned: Millis[] = []

  /** The median of those that were not slow; undefined until there are enough of them. */
  get baselineMs(): Millis | undefined {
    return this.#baselineMs
  }

  /** Notes one, and says how many of the latest are over a bound. */
  take(ms: Millis, boundMs: Millis): number {
    this.latestMs = ms
    this.#latest.push(ms)
    if (this.#latest.length > WINDOW) this.#latest.shift()
    if (ms <= boundMs) this.#learn(ms)
    return this.#latest.filter((one) => one > boundMs).length
  }

  /** Forgets slow steps that are over: they must not make the next slow step an incident. */
  forgive(): void {
    this.#latest.length = 0
  }

  #learn(ms: Millis): void {
    this.#learned.push(ms)
    if (this.#learned.length > MOST_LEARNED) this.#learned.shift()
    if (this.#learned.length < LEAST_LEARNED) return
    const sorted = this.#learned.toSorted((one, other) => one - other)
    this.#baselineMs = sorted[Math.floor(sorted.length / 2)]
  }
}

/** The findings of probes about one server. Knows no server and does nothing: it is told, and says what follows. */
export class ServerHealth {
  readonly #clock: Pick<Clock, 'wall' | 'now'>
  readonly #settings: () => ServerHealthConfig
  readonly #phase: number
  #probes = 0
  readonly #paces: Readonly<Record<MeasuredStep, Pace>> = {
    ping: new Pace(),
    list: new Pace(),
    tool: new Pace(),
  }
  #state: HealthState = 'unknown'
  #failure: ProbeFailure | undefined
  #since: { readonly wall: Millis; readonly now: Millis } | undefined
  #notBeforeNow: Millis | undefined
  #lastWellAt: Millis | undefined
  /** The same on the monotonic clock; undefined too where there were no probes since. */
  #lastWellNow: Millis | undefined
  #lastProbeAt: Millis | undefined
  #failures = 0
  #soonMs: Millis = Infinity

  /**
   * `settings` are asked for at each probe: they may change. `phase`, in [0, 1]: how much of the usual pause the first one is.
   * Servers of a gateway begin together, and should not be probed together for ever.
   */
  constructor(clock: Pick<Clock, 'wall' | 'now'>, settings: () => ServerHealthConfig, phase = 1) {
    this.#clock = clock
    this.#settings = settings
    this.#phase = phase
  }

  get state(): HealthState {
    return this.#state
  }

  /** Why it is not well, by the latest probe. */
  get failure(): ProbeFailure | undefined {
    return this.#failure
  }

  /** Probes in a row that were not well. */
  get failures(): number {
    return this.#failures
  }

  /** When the latest probe ended, in milliseconds since the Unix epoch. */
  get lastProbeAt(): Millis | undefined {
    return this.#lastProbeAt
  }

  /** How long the steps took last, and what is usual for them. */
  get paces(): readonly {
    readonly step: MeasuredStep
    readonly latestMs: Millis
    readonly baselineMs: Millis | undefined
  }[] {
    return measured.flatMap((step) => {
      const { latestMs, baselineMs } = this.#paces[step]
      return latestMs === undefined ? [] : [{ step, latestMs, baselineMs }]
    })
  }

  /** Until the next probe of a server that answers. */
  get pauseMs(): Millis {
    const { every } = this.#settings()
    const isInDoubt = this.#state === 'suspicious' || this.#state === 'failing'
    const share = isInDoubt ? 1 / IN_DOUBT : this.#probes === 1 ? this.#phase : 1
    return Math.max(LEAST_PAUSE_MS, Math.min(this.#soonMs, Math.round(every * share)))
  }

  /** The next probe is to come within this, however long the usual pause is. */
  hasten(withinMs: Millis): void {
    this.#soonMs = withinMs
  }

  /** There are no probes any more: what they have shown is not to be believed for ever. */
  forget(): void {
    this.#state = 'unknown'
    this.#failure = this.#since = this.#notBeforeNow = this.#lastWellNow = undefined
    this.#failures = 0
  }

  /** Something else than a probe says that it may be in trouble: a call that did not get through, a session that ended. */
  sign(): void {
    this.#since ??= { wall: this.#clock.wall(), now: (this.#notBeforeNow = this.#clock.now()) }
  }

  /** Takes what a probe has found. */
  take(probe: Probe): ProbeResult {
    this.#lastProbeAt = this.#clock.wall()
    this.#probes++
    this.#soonMs = Infinity
    const slow = this.#slownessOf(probe)
    this.#failure = probe.failure ?? slow?.failure
    if (this.#failure === undefined) this.#well()
    else this.#notWell(probe, this.#failure, slow)
    return {
      state: this.#state,
      failure: this.#failure,
      since: this.#since?.wall,
      sinceNow: this.#since?.now,
      notBeforeNow: this.#notBeforeNow,
      lastWellAt: this.#lastWellAt,
    }
  }

  #well(): void {
    if (this.#state === 'failing') for (const step of measured) this.#paces[step].forgive()
    this.#state = 'well'
    this.#failures = 0
    this.#since = this.#notBeforeNow = undefined
    this.#lastWellAt = this.#clock.wall()
    this.#lastWellNow = this.#clock.now()
  }

  #notWell({ beganAt, beganNow }: Probe, { isCertain }: ProbeFailure, slow: Slowness | undefined): void {
    const { failures } = this.#settings()
    this.#failures++
    if (this.#since === undefined || beganNow < this.#since.now) {
      this.#since = { wall: beganAt, now: beganNow }
      this.#notBeforeNow = this.#lastWellNow ?? beganNow
    }
    const isSlowOften = slow !== undefined && slow.times >= failures
    const isEnough = isCertain === true || this.#failures >= failures || isSlowOften
    if (this.#state !== 'failing') this.#state = isEnough ? 'failing' : 'suspicious'
  }

  #slownessOf({ took }: Probe): Slowness | undefined {
    let worst: Slowness | undefined
    for (const step of measured) {
      const ms = took[step]
      if (ms === undefined) continue
      const pace = this.#paces[step]
      const boundMs = this.#boundOf(step, pace.baselineMs)
      const times = pace.take(ms, boundMs)
      if (ms <= boundMs) continue
      const message = `${step} took ${roundedDuration(ms)}, more than ${roundedDuration(boundMs)}${usual(pace.baselineMs)}`
      if (worst === undefined || times > worst.times) worst = { times, failure: { reason: 'slow', message } }
    }
    return worst
  }

  #boundOf(step: MeasuredStep, baselineMs: Millis | undefined): Millis {
    const { slow } = this.#settings()
    if (slow === false) return Infinity
    if (slow.p95 !== undefined) return step === 'list' ? Infinity : slow.p95
    if (baselineMs === undefined || slow.baseline === undefined) return Infinity
    return Math.max(baselineMs * slow.baseline, baselineMs + LEAST_MARGIN_MS)
  }
}

interface Slowness {
  readonly failure: ProbeFailure
  /** How many of the latest probes were too slow at this step. */
  readonly times: number
}

const usual = (ms: Millis | undefined) => (ms === undefined ? '' : `; ${roundedDuration(ms)} is usual`)
