import type { Call, Caller } from '../../mesh/call.ts'
import type { Millis } from '../../mesh/clock.ts'
import type { PolicyContext, Scope } from '../../mesh/policy.ts'
import type { Chooser, Replica } from './load.ts'

/** Failures in a row after which nobody stays at home at a replica, if there is one without any. */
const SUSPICIOUS = 2

/** How long a replica is suspected after its last failure, in milliseconds: then somebody has to try it again. */
const SUSPECT_MS: Millis = 10_000

/** How long after it was placed in an outage a caller may be placed once more, in milliseconds. */
const PROVISIONAL_MS: Millis = 10_000

/**
 * Where callers are at home, before a server that keeps sessions: a caller stays with the replica that has its session.
 * One that fails while others do not is left, for good, because a session has one place; a new one is opened where the
 * fewest are. Who was placed while replicas were out of reach is placed once more when they are back, so that not all
 * stay where the first one came up.
 */
export class Affinity {
  readonly #replicas: readonly Replica[]
  readonly #chooser: Chooser
  readonly #scope: Scope
  /** When callers were placed while not all replicas were in order; shared by all tools. */
  readonly #provisional: WeakMap<Caller, Millis>

  constructor(replicas: readonly Replica[], chooser: Chooser, scope: Scope, { state }: PolicyContext) {
    const { set, server } = scope
    this.#replicas = replicas
    this.#chooser = chooser
    this.#scope = scope
    this.#provisional = state.get({ kind: 'provisional-affinity', set, server }, () => new WeakMap())
  }

  /** The replica that a call has to go to; undefined: it may go to any that can be used. */
  of(call: Call, now: Millis): Replica | undefined {
    const { caller, attempt, record } = call
    const at = this.#scope.home(caller)
    const home = at === undefined ? undefined : this.#replicas[at]
    if (home === undefined || !this.#scope.mayMove()) return home
    if (home.load.isEjected(now) || this.#isSuspect(home, now) || this.#isDisplaced(caller, home, now)) {
      this.#scope.leave(caller, home.index)
      return undefined
    }
    // A call that has just had no answer at home tries another replica; the caller's next call goes home again.
    return attempt > 1 && record.failedReplica === at ? undefined : home
  }

  /** Whether a call may take another way than that to its caller's home. */
  mayVisit({ caller }: Call): boolean {
    return this.#scope.home(caller) === undefined || this.#scope.mayMove()
  }

  /**
   * The replica at which a caller without a home is going to have one. It will stay there, so what counts is who has the
   * fewest, and not who is fastest at this moment. A replica that cannot be reached is found out by the handshake, before
   * anything was sent. Undefined when the server keeps nothing of callers, or this one has a home.
   */
  place(call: Call, tried: readonly number[], now: Millis): Replica | undefined {
    const { caller } = call
    const counts = this.#scope.homes(caller)
    if (counts === undefined || this.#scope.home(caller) !== undefined) return undefined
    const inOrder = tried.length === 0 && this.#replicas.every(({ load }) => this.#isInOrder(load, now))
    if (inOrder) this.#provisional.delete(caller)
    else this.#provisional.set(caller, now)
    return this.#chooser.best(call, tried, now, (a, b) => this.#isBetter(a, b, counts, now))
  }

  #isBetter(a: Replica, b: Replica, counts: readonly number[], now: Millis): boolean {
    const [suspectA, suspectB] = [this.#isSuspect(a, now), this.#isSuspect(b, now)]
    if (suspectA !== suspectB) return suspectB
    const [hereA, hereB] = [counts[a.index] ?? 0, counts[b.index] ?? 0]
    // With equal numbers it is the faster one, or for calls that come at once the one with fewer of them.
    return hereA === hereB ? a.load.rating(now) < b.load.rating(now) : hereA < hereB
  }

  #isInOrder(load: Replica['load'], now: Millis): boolean {
    return load.failures === 0 && !load.isEjected(now)
  }

  /** Whether a replica has failed several times in a row, and not come back since, while another one has not. */
  #isSuspect(replica: Replica, now: Millis): boolean {
    const { failures, failedAt } = replica.load
    if (failures < SUSPICIOUS || now - failedAt > SUSPECT_MS || this.#isBack(replica)) return false
    return this.#replicas.some(({ load }) => this.#isInOrder(load, now))
  }

  /** Whether a replica was found to be reachable again since it failed. */
  #isBack({ index, load }: Replica): boolean {
    return this.#scope.backAt(index) > load.failedAt
  }

  /** Whether a caller was placed where it is because others were out of reach, and one of them is better now. */
  #isDisplaced(caller: Caller, home: Replica, now: Millis): boolean {
    const since = this.#provisional.get(caller)
    if (since === undefined) return false
    if (now - since > PROVISIONAL_MS) {
      this.#provisional.delete(caller)
      return false
    }
    const counts = this.#scope.homes(caller)
    const here = counts?.[home.index] ?? 0
    return this.#replicas.some(
      (other) =>
        (this.#isInOrder(other.load, now) || this.#isBack(other)) &&
        !other.load.isEjected(now) &&
        (counts?.[other.index] ?? 0) + 1 < here,
    )
  }
}
