import { shareOfLimit } from '../../experiments/guarded/gate.ts'
import type { RunRecord } from '../../experiments/guarded/record.ts'
import type { Cancel, Clock, Millis } from '../../mesh/clock.ts'
import type { RecentTraffic } from './traffic.ts'

const MINUTE_MS: Millis = 60_000

/** A signal counts as a precursor if the signal was active in this time before an incident, in minutes. */
const BEFORE = 15

/** Maximum number of figures in a baseline, one figure a minute. */
const BASELINE = 120

/** Minimum number of figures in a baseline. */
const LEAST_BASELINE = 10

/** Limit on the p95, as a factor of the p95 in the baseline. */
const SLOW = 1.5

/** Limit on the retries per call, as a factor of the retries per call in the baseline. */
const RETRIES = 2

/** Number of opened breakers, opened gates and ejected replicas that activates the signal. */
const TRANSITIONS = 3

/** Measured share of a gate's limit that activates the signal. */
const NEAR = 0.8

/** Limit for the number of observed servers. */
const MAX_SERVERS = 1_000

export const signals = [
  'p95 above 1.5 times the usual',
  'retries above twice the usual',
  '3 or more breakers or gates opened',
  'a run came within 20% of a limit of its gate',
] as const
export type Signal = (typeof signals)[number]

/** The fields of a guarded run that decide about a signal of the run's targets. */
type Run = Pick<RunRecord, 'nearest' | 'targets' | 'endedAt'>

interface Watched {
  /** The p95 of each minute in the baseline. */
  p95: number[]
  /** The retries per call of each minute in the baseline. */
  retries: number[]
  /** Minutes in which a breaker or gate opened, or a replica was ejected. */
  readonly transitions: number[]
  /** For each signal, the last minute in which the signal was active. */
  readonly activeAt: Map<Signal, number>
  /** For each signal, the number of incidents that the signal preceded. */
  readonly preceded: Map<Signal, number>
  incidents: number
  lastIncident: string | undefined
}

/** An active signal, and the number of incidents that the signal preceded. */
export interface Precursor {
  readonly server: string
  readonly signal: Signal
  /** Number of incidents that the signal preceded by at most 15 minutes. */
  readonly preceded: number
  /** Number of all incidents of the server. */
  readonly incidents: number
}

/** Checks the signals of each server once a minute, and counts the signals that were active before incidents. */
export class Signals {
  readonly #servers = new Map<string, Watched>()
  readonly #clock: Clock
  readonly #traffic: RecentTraffic
  readonly #runs: () => readonly Run[]
  #cancel: Cancel | undefined

  constructor(
    clock: Clock,
    traffic: RecentTraffic,
    servers: () => Iterable<string>,
    runs: () => readonly Run[],
  ) {
    this.#clock = clock
    this.#traffic = traffic
    this.#runs = runs
    const look = () => {
      this.#cancel = clock.after(MINUTE_MS, () => {
        for (const server of servers()) this.look(server)
        this.#lookAtRuns()
        look()
      })
    }
    look()
  }

  close(): void {
    this.#cancel?.()
  }

  /** Called when a breaker or gate of the server opens, or a replica is ejected. */
  transition(server: string): void {
    const { transitions } = this.#of(server)
    transitions.push(this.#minute())
    if (transitions.length > 64) transitions.shift()
  }

  /** Called after each probe, with the server's open incident. Counts each incident once. */
  incident(server: string, id: string | undefined): void {
    const watched = this.#of(server)
    if (id === undefined || id === watched.lastIncident) return
    this.look(server)
    this.#lookAtRuns()
    watched.lastIncident = id
    watched.incidents++
    for (const signal of this.#active(watched, BEFORE))
      watched.preceded.set(signal, (watched.preceded.get(signal) ?? 0) + 1)
  }

  /** Compares the last two minutes of a server with the server's baseline. */
  look(server: string): void {
    const watched = this.#of(server)
    const minute = this.#minute()
    const recent = this.#traffic.of((name) => name === server, 2)
    if (recent !== undefined) {
      const { p95 = 0, calls, attempts } = recent.figures
      const retries = Math.max(0, attempts / calls - 1)
      const { p95: baselineP95, retries: baselineRetries } = watched
      if (baselineP95.length >= LEAST_BASELINE && p95 > SLOW * medianOf(baselineP95))
        watched.activeAt.set(signals[0], minute)
      if (
        baselineRetries.length >= LEAST_BASELINE &&
        retries > RETRIES * Math.max(0.01, medianOf(baselineRetries))
      )
        watched.activeAt.set(signals[1], minute)
      watched.p95 = [...baselineP95, p95].slice(-BASELINE)
      watched.retries = [...baselineRetries, retries].slice(-BASELINE)
    }
    const opened = watched.transitions.filter((at) => at > minute - BEFORE).length
    if (opened >= TRANSITIONS) watched.activeAt.set(signals[2], minute)
  }

  /**
   * Returns signals that were active in the last 5 minutes, if the signal preceded an earlier incident of the same
   * server.
   */
  precursors(): readonly Precursor[] {
    this.#lookAtRuns()
    return [...this.#servers].flatMap(([server, watched]) =>
      this.#active(watched, 5).flatMap((signal): Precursor[] => {
        const preceded = watched.preceded.get(signal) ?? 0
        return preceded === 0 ? [] : [{ server, signal, preceded, incidents: watched.incidents }]
      }),
    )
  }

  /** Activates the signal of the targets while a run is near a limit of the gate. */
  #lookAtRuns(): void {
    const [now, wall] = [this.#clock.now(), this.#clock.wall()]
    for (const { nearest, targets, endedAt = wall } of this.#runs()) {
      if (nearest === undefined || shareOfLimit(nearest) < NEAR) continue
      const minute = Math.floor((now - Math.max(0, wall - endedAt)) / MINUTE_MS)
      for (const { name } of targets.servers) {
        const activeAt = this.#servers.get(name)?.activeAt
        activeAt?.set(signals[3], Math.max(minute, activeAt.get(signals[3]) ?? -Infinity))
      }
    }
  }

  #active({ activeAt }: Watched, minutes: number): readonly Signal[] {
    const now = this.#minute()
    return signals.filter((signal) => (activeAt.get(signal) ?? -Infinity) > now - minutes)
  }

  #minute(): number {
    return Math.floor(this.#clock.now() / MINUTE_MS)
  }

  #of(server: string): Watched {
    let watched = this.#servers.get(server)
    if (watched === undefined) {
      watched = {
        p95: [],
        retries: [],
        transitions: [],
        activeAt: new Map(),
        preceded: new Map(),
        incidents: 0,
        lastIncident: undefined,
      }
      this.#servers.set(server, watched)
      if (this.#servers.size > MAX_SERVERS) this.#servers.delete(this.#servers.keys().next().value!)
    }
    return watched
  }
}

function medianOf(values: readonly number[]): number {
  const sorted = [...values].sort((a, b) => a - b)
  return sorted[Math.floor(sorted.length / 2)]!
}
