import type { ServerHealthConfig } from '../../config/schema/health-schema.ts'
import type { Clock, Millis } from '../../mesh/clock.ts'
import { roundedDuration } from '../../units/duration.ts'
import type { Probe, ProbeFailure, ProbeStep } from './probe.ts'

/**
 * `unknown` until the first probe. `suspicious` with failed or slow probes, but too few for an incident. `failing` from
 * the incident on, until the first good probe.
 */
export type HealthState = 'unknown' | 'well' | 'suspicious' | 'failing'

/** The health of a server after a probe. */
export interface ProbeResult {
  readonly state: HealthState
  /** Why the server is not well, by this probe. */
  readonly failure: ProbeFailure | undefined
  /** First sign of the current trouble, in milliseconds since the Unix epoch. */
  readonly since: Millis | undefined
  /** `since` on the monotonic clock, to measure durations. */
  readonly sinceNow: Millis | undefined
  /**
   * Earliest possible start of the trouble, on the monotonic clock: the last good probe if a probe was the first sign,
   * else `sinceNow`.
   */
  readonly notBeforeNow: Millis | undefined
  /** Time of the last good probe, in milliseconds since the Unix epoch. */
  readonly lastWellAt: Millis | undefined
}

/** Factor for more frequent probes of a server in doubt, and least pause between probes, in milliseconds. */
const IN_DOUBT = 6
const LEAST_PAUSE_MS: Millis = 1_000

/** Window of probes to count slow steps: more than one of 20 is more than 5 %. */
const WINDOW = 20

/** Least and most probes for a baseline. */
const LEAST_LEARNED = 5
const MOST_LEARNED = 50

/** Least excess over the baseline to count as slow, in milliseconds. */
const LEAST_MARGIN_MS: Millis = 100

/** The measured steps. Opening a session is not measured, because a process start may be included. */
const measured = ['ping', 'list', 'tool'] as const satisfies readonly ProbeStep[]
export type MeasuredStep = (typeof measured)[number]

/** The recent durations of a step. */
class Pace {
  latestMs: Millis | undefined
  #baselineMs: Millis | undefined
  readonly #latest: Millis[] = []
  readonly #learned: Millis[] = []

  /** The median of durations that were not slow; undefined with fewer than `LEAST_LEARNED`. */
  get baselineMs(): Millis | undefined {
    return this.#baselineMs
  }

  /** Records a duration. Returns the number of recent durations over the bound. */
  take(ms: Millis, boundMs: Millis): number {
    this.latestMs = ms
    this.#latest.push(ms)
    if (this.#latest.length > WINDOW) this.#latest.shift()
    if (ms <= boundMs) this.#learn(ms)
    return this.#latest.filter((one) => one > boundMs).length
  }

  /** Forgets past slow steps, so the next slow step alone opens no incident. */
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

/** Derives a server's health from probes. Does no I/O. */
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
  /** `#lastWellAt` on the monotonic clock; also undefined after probes were turned off. */
  #lastWellNow: Millis | undefined
  #lastProbeAt: Millis | undefined
  #failures = 0
  #soonMs: Millis = Infinity

  /**
   * `settings` may change, and is read at each probe. `phase`, in [0, 1]: share of the usual pause used after the first
   * probe. Servers start together, and the phase spreads their later probes.
   */
  constructor(clock: Pick<Clock, 'wall' | 'now'>, settings: () => ServerHealthConfig, phase = 1) {
    this.#clock = clock
    this.#settings = settings
    this.#phase = phase
  }

  get state(): HealthState {
    return this.#state
  }

  /** Why the server is not well, by the latest probe. */
  get failure(): ProbeFailure | undefined {
    return this.#failure
  }

  /** Failed or slow probes in a row. */
  get failures(): number {
    return this.#failures
  }

  /** End of the latest probe, in milliseconds since the Unix epoch. */
  get lastProbeAt(): Millis | undefined {
    return this.#lastProbeAt
  }

  /** Latest duration and baseline of each step. */
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

  /** Pause before the next probe of an answering server. */
  get pauseMs(): Millis {
    const { every } = this.#settings()
    const isInDoubt = this.#state === 'suspicious' || this.#state === 'failing'
    const share = isInDoubt ? 1 / IN_DOUBT : this.#probes === 1 ? this.#phase : 1
    return Math.max(LEAST_PAUSE_MS, Math.min(this.#soonMs, Math.round(every * share)))
  }

  /** Limits the pause before the next probe. */
  hasten(withinMs: Millis): void {
    this.#soonMs = withinMs
  }

  /** Resets the health when probes are turned off, because old findings go stale. */
  forget(): void {
    this.#state = 'unknown'
    this.#failure = this.#since = this.#notBeforeNow = this.#lastWellNow = undefined
    this.#failures = 0
  }

  /** Records a sign of trouble other than a probe: an undelivered call, or the end of a session. */
  sign(): void {
    this.#since ??= { wall: this.#clock.wall(), now: (this.#notBeforeNow = this.#clock.now()) }
  }

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
  /** Number of recent probes too slow at this step. */
  readonly times: number
}

const usual = (ms: Millis | undefined) => (ms === undefined ? '' : `; ${roundedDuration(ms)} is usual`)
