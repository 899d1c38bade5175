import type { Millis } from '../../mesh/clock.ts'
import type { Kit } from '../../mesh/policy.ts'
import type { Replica } from './replica.ts'

/** When a replica is taken out of use. */
export interface EjectionRule {
  /** After so many failures in a row. */
  readonly consecutive: number
  /** For how long the first time, in milliseconds; twice as long the second time, then three times … */
  readonly base: Millis
  /** Most of the replicas that may be out at once, as a share; one may always be, but never the last. */
  readonly most: number
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
  readonly #server: string
  readonly #emit: Kit['emit']

  constructor(rule: EjectionRule, replicas: readonly Replica[], server: string, kit: Kit) {
    this.#rule = rule
    this.#replicas = replicas
    this.#most = Math.min(replicas.length - 1, Math.max(1, Math.floor(replicas.length * rule.most)))
    this.#server = server
    this.#emit = (event) => kit.emit(event)
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
      server: this.#server,
      detail: { replica: index, forMs, failures, ejections },
    })
  }

  #out(now: Millis): number {
    let out = 0
    for (const { load } of this.#replicas) if (load.isEjected(now)) out++
    return out
  }
}
