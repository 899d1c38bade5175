import Bottleneck from 'bottleneck'
import { Cancellation, type Signal } from '../../mesh/cancel.ts'

/**
 * Gives out turns, one at a time and `paceMs` apart. bottleneck does the pacing, and nothing else: its jobs cannot
 * be cancelled, so a turn belongs to no call, but to whoever is first in line when it comes. Its timers keep the
 * process alive, so it lives only as long as somebody waits.
 */
export class Pacer {
  readonly #limiter: Bottleneck
  readonly #ended = new Cancellation()
  readonly #turn: () => Promise<void>
  #turns = 0

  /** `serve` uses one turn; the next one comes when its promise has resolved. It is told when the pacer ends. */
  constructor(paceMs: number, serve: (ended: Signal) => Promise<void>) {
    this.#limiter = new Bottleneck({ maxConcurrent: 1, minTime: paceMs, rejectOnDrop: false })
    this.#turn = () => serve(this.#ended).finally(() => this.#turns--)
  }

  /** Sees to it that `wanted` turns are to come; turns that were meant for somebody who has left count too. */
  provide(wanted: number): void {
    while (this.#turns < wanted) {
      this.#turns++
      void this.#limiter.schedule(this.#turn)
    }
  }

  /** Gives no more turns, and lets go of all timers. */
  end(): void {
    this.#ended.abort(undefined)
    void this.#limiter.stop({ dropWaitingJobs: true })
  }
}
