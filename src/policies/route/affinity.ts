import type { Call, Caller } from '../../mesh/call.ts'
import type { Millis } from '../../mesh/clock.ts'
import type { PolicyContext, Scope } from '../../mesh/policy.ts'
import type { Chooser, Replica } from './load.ts'

/** Failures in a row after which callers leave a replica, if another replica has no failures. */
const SUSPICIOUS = 2

/** How long a replica is suspected after its last failure, in milliseconds: then a call has to try it again. */
const SUSPECT_MS: Millis = 10_000

/** How long after a placement during an outage a caller may be placed once more, in milliseconds. */
const PROVISIONAL_MS: Millis = 10_000

/**
 * Keeps each caller of a stateful server at its home, the replica with the caller's session. A caller whose home keeps
 * failing while another replica works gives up the session: its next session opens elsewhere, at a new home. A new home
 * is the replica with the fewest callers. Callers that got a home while replicas were unreachable may move once these
 * replicas are back, so not all stay on the first replica to return.
 */
export class Affinity {
  readonly #replicas: readonly Replica[]
  readonly #chooser: Chooser
  readonly #scope: Scope
  /** When callers were placed while not all replicas worked; shared by all tools. */
  readonly #provisional: WeakMap<Caller, Millis>

  constructor(replicas: readonly Replica[], chooser: Chooser, scope: Scope, { state }: PolicyContext) {
    const { set, server } = scope
    this.#replicas = replicas
    this.#chooser = chooser
    this.#scope = scope
    this.#provisional = state.get({ kind: 'provisional-affinity', set, server }, () => new WeakMap())
  }

  /** Returns the replica a call has to use; undefined when any usable replica will do. */
  of(call: Call, now: Millis): Replica | undefined {
    const { caller, attempt, record } = call
    const at = this.#scope.home(caller)
    const home = at === undefined ? undefined : this.#replicas[at]
    if (home === undefined || !this.#scope.mayMove()) return home
    if (home.load.isEjected(now) || this.#isSuspect(home, now) || this.#isDisplaced(caller, home, now)) {
      this.#scope.leave(caller, home.index)
      return undefined
    }
    // After a failed try at home, a call tries another replica; the caller's next call goes home again.
    return attempt > 1 && record.failedReplica === at ? undefined : home
  }

  /** Returns whether a call may go to another replica than its caller's home. */
  mayVisit({ caller }: Call): boolean {
    return this.#scope.home(caller) === undefined || this.#scope.mayMove()
  }

  /**
   * Returns the replica to become the home of a caller without a home. The caller will stay, so the number of callers
   * counts, not the present speed. The handshake reveals an unreachable replica before anything is sent. Undefined when
   * the server keeps no caller state, or this caller has a home.
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
    // With equal numbers, the faster replica is better, or for simultaneous calls the replica with fewer calls.
    return hereA === hereB ? a.load.rating(now) < b.load.rating(now) : hereA < hereB
  }

  #isInOrder(load: Replica['load'], now: Millis): boolean {
    return load.failures === 0 && !load.isEjected(now)
  }

  /**
   * Returns whether a replica has failed several times in a row without being found reachable since, while another
   * replica has not failed.
   */
  #isSuspect(replica: Replica, now: Millis): boolean {
    const { failures, failedAt } = replica.load
    if (failures < SUSPICIOUS || now - failedAt > SUSPECT_MS || this.#isBack(replica)) return false
    return this.#replicas.some(({ load }) => this.#isInOrder(load, now))
  }

  /** Returns whether a replica was found reachable again since its failure. */
  #isBack({ index, load }: Replica): boolean {
    return this.#scope.backAt(index) > load.failedAt
  }

  /**
   * Returns whether a caller is at `home` only because other replicas were unreachable, and another replica is better
   * now.
   */
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
