import Bottleneck from 'bottleneck'
import { Cancellation } from '../../mesh/cancel.ts'
import type { Clock, Millis } from '../../mesh/clock.ts'

/** Runs jobs one at a time, in order of arrival, with at least a pace between two starts. */
export interface Pacer {
  /** Runs a job at its turn. Jobs cannot be cancelled, and must not throw. */
  schedule(job: () => Promise<void>): unknown
  /** Starts no more jobs, and clears all timers. Called once, with no job afterwards. */
  stop(): unknown
}

/**
 * Returns a bottleneck queue for the machine's clock, because bottleneck reads the wall clock; for other clocks a
 * `ClockPacer`.
 */
export function pacerOn(clock: Clock, paceMs: Millis): Pacer {
  return clock.isReal
    ? new Bottleneck({ maxConcurrent: 1, minTime: paceMs, rejectOnDrop: false })
    : new ClockPacer(clock, paceMs)
}

class ClockPacer implements Pacer {
  readonly #clock: Clock
  readonly #paceMs: Millis
  readonly #stopped = new Cancellation()
  #last = Promise.resolve()
  #next: Millis = -Infinity

  constructor(clock: Clock, paceMs: Millis) {
    this.#clock = clock
    this.#paceMs = paceMs
  }

  schedule(job: () => Promise<void>): void {
    const run = async () => {
      const now = this.#clock.now()
      const at = Math.max(now, this.#next)
      this.#next = at + this.#paceMs
      await this.#clock.sleep(at - now, this.#stopped)
      await job()
    }
    this.#last = this.#last.then(run).catch(() => undefined)
  }

  stop(): void {
    this.#stopped.abort(undefined)
  }
}
