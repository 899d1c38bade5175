import type { CallRecord, Outcome } from '../../mesh/call.ts'
import type { Clock, Millis } from '../../mesh/clock.ts'
import type { Kept } from './kept.ts'

/** A call that was started under a key. */
export interface Run {
  readonly fingerprint: string
  /** That of the call which started it. */
  readonly record: CallRecord
  readonly outcome: Promise<Outcome>
}

/** A call that is over. */
export interface Ended {
  readonly fingerprint: string
  readonly kept: Kept
  /** When it is forgotten. */
  readonly expiresAt: Millis
}

/**
 * The calls of one server that have a key: those that run, which are never forgotten, and those that are over,
 * in the order in which they ended.
 */
export class Runs {
  readonly #clock: Clock
  readonly #underWay = new Map<string, Run>()
  readonly #over = new Map<string, Ended>()
  #oldestFirst = this.#over.entries()
  #bytes = 0
  #evicted = 0

  constructor(clock: Clock) {
    this.#clock = clock
  }

  find(id: string): Run | Ended | undefined {
    const running = this.#underWay.get(id)
    if (running !== undefined) return running
    const run = this.#over.get(id)
    if (run === undefined || run.expiresAt > this.#clock.now()) return run
    this.#drop(id, run)
    return undefined
  }

  /** Makes room for one call more; false when `most` are still under way. */
  makeRoom(most: number): boolean {
    while (this.#underWay.size + this.#over.size >= most && this.#over.size > 0) this.#evictOldest()
    return this.#underWay.size < most
  }

  begin(id: string, run: Run): void {
    this.#underWay.set(id, run)
  }

  /** The call is over; `maxSize` is how many bytes of answers may be kept. */
  finish(id: string, ended: Ended, maxSize: number): void {
    this.#underWay.delete(id)
    this.#over.set(id, ended)
    this.#bytes += bytesOf(ended)
    while (this.#bytes > maxSize) this.#evictOldest()
  }

  /** The call is over, and may run again. */
  forget(id: string): void {
    this.#underWay.delete(id)
  }

  /** For the admin API: how many calls run, how many answers are kept, their size, and how many had to go early. */
  snapshot() {
    return {
      underWay: this.#underWay.size,
      over: this.#over.size,
      bytes: this.#bytes,
      evicted: this.#evicted,
    }
  }

  /** One walk for all of them: each new one would have to pass by what others have dropped at the front. */
  #evictOldest(): void {
    let { value: oldest } = this.#oldestFirst.next()
    if (oldest === undefined) {
      this.#oldestFirst = this.#over.entries()
      oldest = this.#oldestFirst.next().value
    }
    if (oldest === undefined) return
    const [id, ended] = oldest
    if (ended.expiresAt > this.#clock.now()) this.#evicted++
    this.#drop(id, ended)
  }

  #drop(id: string, run: Ended): void {
    this.#over.delete(id)
    this.#bytes -= bytesOf(run)
  }
}

function bytesOf({ kept }: Ended): number {
  return kept.kind === 'answered' ? kept.bytes : 0
}
