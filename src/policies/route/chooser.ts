import type { Call } from '../../mesh/call.ts'
import type { Millis } from '../../mesh/clock.ts'
import type { Dice } from '../../mesh/dice.ts'
import type { Feasibility } from './feasibility.ts'
import type { Replica } from './replica.ts'

/**
 * Chooses replicas: of two at random the better one (Mitzenmacher, "The power of two choices"), which is nearly as
 * good as the best of all, and does not send everybody to the same one.
 */
export class Chooser {
  readonly #replicas: readonly Replica[]
  readonly #dice: Dice
  /** Those in question, while one choice is made; the rest is left over from earlier ones. */
  readonly #pool: Replica[]
  #size = 0

  constructor(replicas: readonly Replica[], dice: Dice) {
    this.#replicas = replicas
    this.#dice = dice
    this.#pool = [...replicas]
  }

  /** One that is in use, that is none of `tried`, and, if there is another, not the one that failed before. */
  choose(call: Call, tried: readonly number[], now: Millis): Replica | undefined {
    this.#fill(call, tried, now)
    const [first] = this.#pool
    if (this.#size <= 1) return this.#size === 1 ? first : undefined
    const { caller, id, attempt, record } = call
    // One draw is enough for both. The time is for clients that give every call the same id.
    const drawn = this.#dice(`${caller.id}:${id}:${attempt}:${record.startedAt | 0}`, 'route') * this.#size
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
