import type { Call } from '../../mesh/call.ts'
import type { Millis } from '../../mesh/clock.ts'
import type { KeyedRandom } from '../../mesh/keyed-random.ts'
import type { PolicyContext, Scope } from '../../mesh/policy.ts'
import { estimateOf, type LatencyEstimate } from '../state/estimate.ts'
import type { Feasibility } from './feasibility.ts'

/** The time constant with which a replica's cost fades, in milliseconds. */
const TAU_MS = 10_000

/**
 * The highest cost. After 46 seconds without a call it has faded to the usual cost, and a call tries the replica again.
 */
const MOST = 100

/** The cost of a failure, however quick: without it, the fastest-failing replica would look best. */
const FAILED = 10

/** The cost of an unknown replica, while its first calls are under way. */
const UNPROVEN = 1e6

/** After this many ejections without a success in between, an ejection lasts its full time. */
const MOST_READMITTED = 3

/** A replica as the admin API shows it. */
interface LoadSnapshot {
  readonly inFlight: number
  /** How slow the replica was lately, as a multiple of its tools' usual time; undefined when nothing is known. */
  readonly cost: number | undefined
  /** Failures in a row. */
  readonly failures: number
  /** Ejections since the last success. */
  readonly ejections: number
  /** How long no call goes to the replica from now on, in milliseconds; 0 when in use. */
  readonly ejectedForMs: Millis
}

/**
 * The load and the health of a replica. All tools of its server share the cost, so the cost is a multiple of each
 * tool's usual time. A slow tool thus does not make the replica look slow to quick tools.
 */
export class ReplicaLoad {
  inFlight = 0
  failures = 0
  /** When the latest failed call was sent, on the monotonic clock. */
  failedAt: Millis = -Infinity
  ejections = 0
  /** Until when no call goes to the replica, on the monotonic clock. */
  ejectedUntil: Millis = -Infinity
  readonly #cost = new PeakEwma(TAU_MS)

  isEjected(now: Millis): boolean {
    return this.ejectedUntil > now
  }

  /**
   * Returns a rating of the replica; lower is better. The rating of an idle replica falls with time, so that a call
   * tries the replica again. During that call the old rating counts, so only a single call tries it.
   */
  rating(now: Millis): number {
    if (this.inFlight === 0) return this.#cost.faded(now)
    const cost = this.#cost.last
    return cost === undefined ? UNPROVEN + this.inFlight : cost * (this.inFlight + 1)
  }

  /** Notes an answer after `slowness` times the usual time. */
  answered(slowness: number, now: Millis): void {
    this.#cost.add(Math.min(MOST, slowness), now)
  }

  failed(slowness: number, now: Millis): void {
    this.#cost.add(Math.min(MOST, Math.max(slowness, FAILED, this.#cost.last ?? 0)), now)
  }

  /** Notes that the replica works. An answer to a call from before its ejection proves nothing. */
  succeeded(now: Millis): void {
    if (this.failures === 0 || this.isEjected(now)) return
    this.failures = 0
    this.ejections = 0
  }

  /**
   * Notes a failed call that took `ms`. The failure is dated to the call's start, because the call shows nothing about
   * later events.
   */
  broke(ms: Millis, now: Millis): void {
    this.failedAt = Math.max(this.failedAt, now - ms)
    if (!this.isEjected(now)) this.failures++
  }

  /**
   * Ends an ejection because the replica was reachable again at `backAt`. Does nothing after several ejections without
   * a success.
   */
  readmit(backAt: Millis): void {
    if (backAt > this.failedAt && this.ejections <= MOST_READMITTED) this.ejectedUntil = -Infinity
  }

  /** Notes a call given up after `slowness` times the usual time: it would have taken longer. */
  givenUp(slowness: number, now: Millis): void {
    this.#cost.addAtLeast(Math.min(MOST, slowness), now)
  }

  snapshot(now: Millis): LoadSnapshot {
    const { inFlight, failures, ejections } = this
    const cost = this.#cost.last === undefined ? undefined : this.#cost.faded(now)
    return { inFlight, cost, failures, ejections, ejectedForMs: Math.max(0, this.ejectedUntil - now) }
  }
}

/** Returns the load of a replica, shared by all tools of its server. */
function loadOf({ state }: PolicyContext, { set, server, endpoints }: Scope, replica: number): ReplicaLoad {
  return state.get(
    { kind: 'load', set, server, endpoint: endpoints[replica], replica },
    () => new ReplicaLoad(),
  )
}

/** How far each answer moves the usual time: down quickly and up slowly, so that the fastest replica decides it. */
const DOWN = 0.2
const UP = 0.02

/** Added to both times: a difference of a millisecond says nothing about a replica. */
const NOISE_MS = 1

/** A tool's usual time, over all replicas: makes the times of different tools comparable. */
export class UsualTime {
  #ms: Millis | undefined

  add(ms: Millis): void {
    if (this.#ms === undefined) this.#ms = ms
    else this.#ms += (ms < this.#ms ? DOWN : UP) * (ms - this.#ms)
  }

  /** Returns a duration as a multiple of the usual time; 1 when nothing is known. */
  slownessOf(ms: Millis): number {
    return this.#ms === undefined ? 1 : (ms + NOISE_MS) / (this.#ms + NOISE_MS)
  }
}

export interface Replica {
  readonly index: number
  /** The replica's load, shared by all tools of the server. */
  readonly load: ReplicaLoad
  /** How long the scope's tool takes at this replica. */
  readonly estimate: LatencyEstimate
}

export function replicasOf(context: PolicyContext, scope: Scope): Replica[] {
  return Array.from({ length: scope.replicas }, (_, index) => ({
    index,
    load: loadOf(context, scope, index),
    estimate: estimateOf(context, scope, index),
  }))
}

export interface EjectionRule {
  /** Failures in a row before an ejection. */
  readonly consecutive: number
  /** How long the first ejection lasts, in milliseconds; the second lasts twice as long, the third three times … */
  readonly base: Millis
  /** Largest share of the replicas out of use at once; one replica always may be, but never the last. */
  readonly maxShare: number
}

/** Longest time a replica is out of use, in milliseconds. */
const LONGEST_MS = 300_000

/** Takes replicas that only fail out of use for a while; for longer when the first call afterwards fails. */
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

  failed({ index, load }: Replica, now: Millis): void {
    if (load.isEjected(now)) return
    if (load.failures < this.#rule.consecutive || this.#out(now) >= this.#most) return
    // If all replicas fail, none is an outlier. All may return at the same time, so no replica is left out then.
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
 * Chooses replicas: the better of two at random (Mitzenmacher, "The power of two choices"). This is nearly as good as
 * the best of all, and does not send everybody to the same replica.
 */
export class Chooser {
  readonly #replicas: readonly Replica[]
  readonly #random: KeyedRandom
  /** The candidates of the present choice, in the first `#size` places; the rest is left over from earlier choices. */
  readonly #pool: Replica[]
  #size = 0

  constructor(replicas: readonly Replica[], random: KeyedRandom) {
    this.#replicas = replicas
    this.#random = random
    this.#pool = [...replicas]
  }

  /** Returns a replica in use, outside `tried`, and preferably not the replica that failed before. */
  choose(call: Call, tried: readonly number[], now: Millis): Replica | undefined {
    this.#fill(call, tried, now)
    const [first] = this.#pool
    if (this.#size <= 1) return this.#size === 1 ? first : undefined
    const { caller, id, attempt, record } = call
    // A single random number selects both candidates. The key has the start time, because some clients reuse the same
    // id.
    const drawn = this.#random(`${caller.id}:${id}:${attempt}:${record.startedAt | 0}`, 'route') * this.#size
    const one = Math.floor(drawn)
    const step = 1 + Math.floor((drawn - one) * (this.#size - 1))
    const a = this.#pool[one] as Replica
    const b = this.#pool[(one + step) % this.#size] as Replica
    return a.load.rating(now) <= b.load.rating(now) ? a : b
  }

  /** Returns the best of the candidates `choose` uses. */
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

  /** Returns the best of the last choice's candidates that will probably answer in time. */
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
    // The config may have removed all replicas in use: an ejected replica is better than none.
    else if (tried.length === 0) for (const replica of this.#replicas) this.#pool[this.#size++] = replica
  }
}

/**
 * A moving average that rises at once and falls slowly. A value above the average becomes the average, and a value
 * below draws it down with the time constant. After Finagle's peak EWMA load metric.
 */
export class PeakEwma {
  readonly #tauMs: Millis
  #value: number | undefined
  #at: Millis = 0

  /** `tauMs`: after this long without a new value, in milliseconds, 37 % of the average is left. */
  constructor(tauMs: Millis) {
    this.#tauMs = tauMs
  }

  /** The average at the last value, not faded; undefined before the first. */
  get last(): number | undefined {
    return this.#value
  }

  /** Returns the average now, approaching 0 without new values. 0 before the first. */
  faded(now: Millis): number {
    return this.#value === undefined ? 0 : this.#value * Math.exp((this.#at - now) / this.#tauMs)
  }

  add(value: number, now: Millis): void {
    const kept = Math.exp((this.#at - now) / this.#tauMs)
    this.#value =
      this.#value === undefined || value >= this.#value ? value : this.#value * kept + value * (1 - kept)
    this.#at = now
  }

  /** Adds a lower bound of a value: can only raise the average. */
  addAtLeast(value: number, now: Millis): void {
    if (value > (this.#value ?? 0)) this.add(value, now)
  }
}
