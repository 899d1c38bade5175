import { shareOfLimit } from '../../experiments/guarded/gate.ts'
import type { RunRecord } from '../../experiments/guarded/record.ts'
import type { Cancel, Clock, Millis } from '../../mesh/clock.ts'
import type { RecentTraffic } from './traffic.ts'

const MINUTE_MS: Millis = 60_000

/** How long before an incident a moving signal counts as its precursor, in minutes. */
const BEFORE = 15

/** Minutes of figures from which the usual values come, and the least number needed. */
const USUAL = 120
const LEAST_USUAL = 10

/**
 * Limits of the signals: times the usual p95, times the usual attempts per call, breaker transitions, and the share of a
 * gate's limit.
 */
const SLOW = 1.5
const RETRIES = 2
const TRANSITIONS = 3
const NEAR = 0.8

const MAX_SERVERS = 1_000

export const signals = [
  'p95 above 1.5 times the usual',
  'retries above twice the usual',
  '3 or more breakers or gates opened',
  'a run came within 20% of a limit of its gate',
] as const
export type Signal = (typeof signals)[number]

/** The facts about a guarded run that are a signal of its targets. */
type Run = Pick<RunRecord, 'nearest' | 'targets' | 'endedAt'>

interface Watched {
  p95: number[]
  retries: number[]
  /** Minutes in which a breaker, gate or ejection acted. */
  readonly transitions: number[]
  /** For each signal, the last minute in which the signal moved. */
  readonly movedAt: Map<Signal, number>
  /** For each signal, the number of incidents that the signal preceded. */
  readonly preceded: Map<Signal, number>
  incidents: number
  lastIncident: string | undefined
}

/** A signal that moves now, and its history before the incidents of its server. */
export interface Precursor {
  readonly server: string
  readonly signal: Signal
  /** Incidents that the signal preceded by at most 15 minutes, and all incidents of the server. */
  readonly preceded: number
  readonly incidents: number
}

/** Watches signals of each server once a minute, and remembers the signals that moved before incidents. */
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

  /** A breaker or gate of the server opened, or a replica was ejected. */
  transition(server: string): void {
    const { transitions } = this.#of(server)
    transitions.push(this.#minute())
    if (transitions.length > 64) transitions.shift()
  }

  /** Hears of the server's open incident after each probe; counts each incident once. */
  incident(server: string, id: string | undefined): void {
    const watched = this.#of(server)
    if (id === undefined || id === watched.lastIncident) return
    this.look(server)
    this.#lookAtRuns()
    watched.lastIncident = id
    watched.incidents++
    for (const signal of this.#moving(watched, BEFORE))
      watched.preceded.set(signal, (watched.preceded.get(signal) ?? 0) + 1)
  }

  /** Compares the last minutes of a server with its usual figures. */
  look(server: string): void {
    const watched = this.#of(server)
    const minute = this.#minute()
    const recent = this.#traffic.of((name) => name === server, 2)
    if (recent !== undefined) {
      const { p95 = 0, calls, attempts } = recent.figures
      const retries = Math.max(0, attempts / calls - 1)
      const { p95: usualP95, retries: usualRetries } = watched
      if (usualP95.length >= LEAST_USUAL && p95 > SLOW * medianOf(usualP95))
        watched.movedAt.set(signals[0], minute)
      if (usualRetries.length >= LEAST_USUAL && retries > RETRIES * Math.max(0.01, medianOf(usualRetries)))
        watched.movedAt.set(signals[1], minute)
      watched.p95 = [...usualP95, p95].slice(-USUAL)
      watched.retries = [...usualRetries, retries].slice(-USUAL)
    }
    const opened = watched.transitions.filter((at) => at > minute - BEFORE).length
    if (opened >= TRANSITIONS) watched.movedAt.set(signals[2], minute)
  }

  /** Returns signals that moved within the last 5 minutes and preceded an earlier incident of the same server. */
  precursors(): readonly Precursor[] {
    this.#lookAtRuns()
    return [...this.#servers].flatMap(([server, watched]) =>
      this.#moving(watched, 5).flatMap((signal): Precursor[] => {
        const preceded = watched.preceded.get(signal) ?? 0
        return preceded === 0 ? [] : [{ server, signal, preceded, incidents: watched.incidents }]
      }),
    )
  }

  /** A run near a limit of its gate moves the signal of its targets until the run ends. */
  #lookAtRuns(): void {
    const [now, wall] = [this.#clock.now(), this.#clock.wall()]
    for (const { nearest, targets, endedAt = wall } of this.#runs()) {
      if (nearest === undefined || shareOfLimit(nearest) < NEAR) continue
      const minute = Math.floor((now - Math.max(0, wall - endedAt)) / MINUTE_MS)
      for (const { name } of targets.servers) {
        const movedAt = this.#servers.get(name)?.movedAt
        movedAt?.set(signals[3], Math.max(minute, movedAt.get(signals[3]) ?? -Infinity))
      }
    }
  }

  #moving({ movedAt }: Watched, minutes: number): readonly Signal[] {
    const now = this.#minute()
    return signals.filter((signal) => (movedAt.get(signal) ?? -Infinity) > now - minutes)
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
        movedAt: new Map(),
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
