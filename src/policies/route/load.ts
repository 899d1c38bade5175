import type { Millis } from '../../mesh/clock.ts'
import type { Kit, Scope } from '../../mesh/policy.ts'
import { PeakEwma } from '../state/peak-ewma.ts'

/** How fast a replica's cost is forgotten, in milliseconds. */
const TAU_MS = 10_000

/** Most that a replica can cost: after that, 46 seconds make it as cheap as a usual one, and it is tried again. */
const MOST = 100

/** What a failure costs, however quick it was, or the replica that fails at once would be the best. */
const FAILED = 10

/** What a replica of which nothing is known costs while its first calls are under way. */
const UNPROVEN = 1e6

/** After so many ejections without a success in between, one lasts as long as it was to last. */
const MOST_READMITTED = 3

/** What the admin API shows of a replica. */
interface LoadSnapshot {
  readonly inFlight: number
  /** How slow it was lately, in times of what its tools usually take; undefined when nothing is known. */
  readonly cost: number | undefined
  /** Failures in a row. */
  readonly failures: number
  /** Times that it was ejected since it last succeeded. */
  readonly ejections: number
  /** How long no call is sent to it from now on, in milliseconds; 0 when it is in use. */
  readonly ejectedForMs: Millis
}

/**
 * What one replica has to do and how it does. All tools of its server share it, so its cost is not a time: a slow
 * tool that happened to run here must not make the replica look slow to the quick ones.
 */
export class ReplicaLoad {
  inFlight = 0
  /** Failures in a row. */
  failures = 0
  /** When the latest of the calls that failed was sent, on the monotonic clock. */
  failedAt: Millis = -Infinity
  /** Times that it was ejected since it last succeeded. */
  ejections = 0
  /** Until when no call goes to it, on the monotonic clock. */
  ejectedUntil: Millis = -Infinity
  readonly #cost = new PeakEwma(TAU_MS)

  isEjected(now: Millis): boolean {
    return this.ejectedUntil > now
  }

  /**
   * How bad a choice it is. An idle replica gets better with time, and so is tried again; while that call is under
   * way it is rated as before, so that one call tries it, and not all that come meanwhile.
   */
  rating(now: Millis): number {
    if (this.inFlight === 0) return this.#cost.faded(now)
    const cost = this.#cost.last
    return cost === undefined ? UNPROVEN + this.inFlight : cost * (this.inFlight + 1)
  }

  /** An answer came after `slowness` times of what is usual. */
  answered(slowness: number, now: Millis): void {
    this.#cost.add(Math.min(MOST, slowness), now)
  }

  /** A call failed after `slowness` times of what is usual. */
  failed(slowness: number, now: Millis): void {
    this.#cost.add(Math.min(MOST, Math.max(slowness, FAILED, this.#cost.last ?? 0)), now)
  }

  /** It is in order. An answer to a call from before its ejection proves nothing. */
  succeeded(now: Millis): void {
    if (this.failures === 0 || this.isEjected(now)) return
    this.failures = 0
    this.ejections = 0
  }

  /** It had an outage, as a call shows that took `ms`: what has happened to it since that began, the call cannot tell. */
  broke(ms: Millis, now: Millis): void {
    this.failedAt = Math.max(this.failedAt, now - ms)
    if (!this.isEjected(now)) this.failures++
  }

  /** It was found to be reachable again at `backAt`: that ends an ejection, unless it has often been no use. */
  readmit(backAt: Millis): void {
    if (backAt > this.failedAt && this.ejections <= MOST_READMITTED) this.ejectedUntil = -Infinity
  }

  /** A call was given up after `slowness` times of what is usual: it would have taken longer. */
  givenUp(slowness: number, now: Millis): void {
    this.#cost.addAtLeast(Math.min(MOST, slowness), now)
  }

  snapshot(now: Millis): LoadSnapshot {
    const { inFlight, failures, ejections } = this
    const cost = this.#cost.last === undefined ? undefined : this.#cost.faded(now)
    return { inFlight, cost, failures, ejections, ejectedForMs: Math.max(0, this.ejectedUntil - now) }
  }
}

/** The load of a replica, shared by all tools of its server. */
export function loadOf({ state }: Kit, { set, server, endpoints }: Scope, replica: number): ReplicaLoad {
  return state.get(
    { kind: 'load', set, server, endpoint: endpoints[replica], replica },
    () => new ReplicaLoad(),
  )
}

/** How far one answer moves it: down quickly, up slowly, so that it stays with the fast replica. */
const DOWN = 0.2
const UP = 0.02

/** A millisecond more or less says nothing about a replica. */
const NOISE_MS = 1

/** How long a tool usually takes, on whichever replica: what makes the times of different tools comparable. */
export class UsualTime {
  #ms: Millis | undefined

  /** Takes in how long an answer took. */
  add(ms: Millis): void {
    if (this.#ms === undefined) this.#ms = ms
    else this.#ms += (ms < this.#ms ? DOWN : UP) * (ms - this.#ms)
  }

  /** How many times of the usual a duration is; 1 when nothing is known. */
  slownessOf(ms: Millis): number {
    return this.#ms === undefined ? 1 : (ms + NOISE_MS) / (this.#ms + NOISE_MS)
  }
}
