import type { Call } from '../../mesh/call.ts'
import type { Millis } from '../../mesh/clock.ts'
import type { KeyedRandom } from '../../mesh/keyed-random.ts'
import type { PolicyContext, Scope } from '../../mesh/policy.ts'
import { estimateOf, type LatencyEstimate } from '../state/estimate.ts'
import type { Feasibility } from './feasibility.ts'

/** How fast a replica's cost is forgotten, in milliseconds. */
const TAU_MS = 10_000

/** Most that a replica can cost: after that, 46 seconds make it as cheap as a usual one, and it is tried again. */
const MOST = 100

/** The cost of a failure, however quick: without it, the replica that fails at once would be the best. */
const FAILED = 10

/** The cost of a replica of which nothing is known, while its first calls are under way. */
const UNPROVEN = 1e6

/** After so many ejections without a success in between, one lasts as long as it was to last. */
const MOST_READMITTED = 3

/** A replica as the admin API shows it. */
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
 * The work and the condition of one replica. All tools of its server share the cost, so the cost is not a time. A slow
 * tool that happened to run here must not make the replica look slow to the quick tools.
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
function loadOf({ state }: PolicyContext, { set, server, endpoints }: Scope, replica: number): ReplicaLoad {
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

/** One endpoint of a server, and what is known of it. */
export interface Replica {
  readonly index: number
  /** Shared by all tools. */
  readonly load: ReplicaLoad
  /** How long this tool takes there. */
  readonly estimate: LatencyEstimate
}

/** All replicas of a scope's server. */
export function replicasOf(context: PolicyContext, scope: Scope): Replica[] {
  return Array.from({ length: scope.replicas }, (_, index) => ({
    index,
    load: loadOf(context, scope, index),
    estimate: estimateOf(context, scope, index),
  }))
}

/** When a replica is taken out of use. */
export interface EjectionRule {
  /** After so many failures in a row. */
  readonly consecutive: number
  /** For how long the first time, in milliseconds; twice as long the second time, then three times … */
  readonly base: Millis
  /** Most of the replicas that may be out at once, as a share; one may always be, but never the last. */
  readonly maxShare: number
}

/** Longest time that a replica is out, in milliseconds. */
const LONGEST_MS = 300_000

/**
 * Takes replicas that only fail out of use for a while. The first call after that decides: if it fails, the replica
 * is out again, for longer.
 */
export class Ejection {
  readonly #rule: EjectionRule
  readonly #replicas: readonly Replica[]
  readonly #most: number
  readonly #owner: Pick<Scope, 'set' | 'server'>
  readonly #emit: PolicyContext['emit']

  constructor(
    rule: EjectionRule,
    replicas: readonly Replica[],
    { set, server }: Pick<Scope, 'set' | 'server'>,
    context: PolicyContext,
  ) {
    this.#rule = rule
    this.#replicas = replicas
    this.#most = Math.min(replicas.length - 1, Math.max(1, Math.floor(replicas.length * rule.maxShare)))
    this.#owner = { set, server }
    this.#emit = (event) => context.emit(event)
  }

  /** A replica had an outage. */
  failed({ index, load }: Replica, now: Millis): void {
    if (load.isEjected(now)) return
    if (load.failures < this.#rule.consecutive || this.#out(now) >= this.#most) return
    // Where all fail, none is an outlier: they come back together, and none may be left out then.
    if (!this.#replicas.some((other) => other.load.failures === 0 && !other.load.isEjected(now))) return
    load.ejections++
    const forMs = Math.min(LONGEST_MS, this.#rule.base * load.ejections)
    load.ejectedUntil = now + forMs
    const { failures, ejections } = load
    this.#emit({
      type: 'ejection',
      ...this.#owner,
      detail: { replica: index, forMs, failures, ejections },
    })
  }

  #out(now: Millis): number {
    let out = 0
    for (const { load } of this.#replicas) if (load.isEjected(now)) out++
    return out
  }
}

/**
 * Chooses replicas: of two at random the better one (Mitzenmacher, "The power of two choices"), which is nearly as
 * good as the best of all, and does not send everybody to the same one.
 */
export class Chooser {
  readonly #replicas: readonly Replica[]
  readonly #random: KeyedRandom
  /** The candidates of the choice under way, in the first `#size` places; the rest is left over from earlier choices. */
  readonly #pool: Replica[]
  #size = 0

  constructor(replicas: readonly Replica[], random: KeyedRandom) {
    this.#replicas = replicas
    this.#random = random
    this.#pool = [...replicas]
  }

  /** One that is in use, that is none of `tried`, and, if there is another, not the one that failed before. */
  choose(call: Call, tried: readonly number[], now: Millis): Replica | undefined {
    this.#fill(call, tried, now)
    const [first] = this.#pool
    if (this.#size <= 1) return this.#size === 1 ? first : undefined
    const { caller, id, attempt, record } = call
    // One draw is enough for both. The time is for clients that give every call the same id.
    const drawn = this.#random(`${caller.id}:${id}:${attempt}:${record.startedAt | 0}`, 'route') * this.#size
    const one = Math.floor(drawn)
    const step = 1 + Math.floor((drawn - one) * (this.#size - 1))
    const a = this.#pool[one] as Replica
    const b = this.#pool[(one + step) % this.#size] as Replica
    return a.load.rating(now) <= b.load.rating(now) ? a : b
  }

  /** The best of those that `choose` chooses from. */
  best(
    call: Call,
    tried: readonly number[],
    now: Millis,
    isBetter: (a: Replica, b: Replica) => boolean,
  ): Replica | undefined {
    this.#fill(call, tried, now)
    let best: Replica | undefined
    for (let i = 0; i < this.#size; i++) {
      const replica = this.#pool[i] as Replica
      if (best === undefined || isBetter(replica, best)) best = replica
    }
    return best
  }

  /** The best of those in question at the last choice that will probably answer in time. */
  chooseFitting(feasibility: Feasibility, leftMs: Millis, now: Millis): Replica | undefined {
    let best: Replica | undefined
    for (let i = 0; i < this.#size; i++) {
      const replica = this.#pool[i] as Replica
      if (best !== undefined && best.load.rating(now) <= replica.load.rating(now)) continue
      if (feasibility.fits(replica, leftMs, now)) best = replica
    }
    return best
  }

  #fill({ attempt, record }: Call, tried: readonly number[], now: Millis): void {
    const failed = attempt > 1 ? (record.failedReplica ?? record.replica) : undefined
    let avoided: Replica | undefined
    this.#size = 0
    for (const replica of this.#replicas) {
      if (tried.includes(replica.index) || replica.load.isEjected(now)) continue
      if (replica.index === failed) avoided = replica
      else this.#pool[this.#size++] = replica
    }
    if (this.#size > 0) return
    if (avoided !== undefined) this.#pool[this.#size++] = avoided
    // The config may have taken away all that were in use: an ejected replica is better than none.
    else if (tried.length === 0) for (const replica of this.#replicas) this.#pool[this.#size++] = replica
  }
}

/**
 * A moving average that believes bad news at once and good news slowly: a value above it becomes it, one below it
 * draws it down with the time constant. After Finagle's peak EWMA load metric.
 */
export class PeakEwma {
  readonly #tauMs: Millis
  #value: number | undefined
  #at: Millis = 0

  /** `tauMs`: after this long without a new value, in milliseconds, 37 % of the average is left. */
  constructor(tauMs: Millis) {
    this.#tauMs = tauMs
  }

  /** The average as it was at the last value, not faded; undefined before the first. */
  get last(): number | undefined {
    return this.#value
  }

  /** The average now: the longer there was no value, the nearer to 0. 0 before the first. */
  faded(now: Millis): number {
    return this.#value === undefined ? 0 : this.#value * Math.exp((this.#at - now) / this.#tauMs)
  }

  /** Takes a value in. */
  add(value: number, now: Millis): void {
    const kept = Math.exp((this.#at - now) / this.#tauMs)
    this.#value =
      this.#value === undefined || value >= this.#value ? value : this.#value * kept + value * (1 - kept)
    this.#at = now
  }

  /** Takes in that a value was at least this: it can only raise the average. */
  addAtLeast(value: number, now: Millis): void {
    if (value > (this.#value ?? 0)) this.add(value, now)
  }
}
