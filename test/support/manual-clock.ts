import { setImmediate } from 'node:timers/promises'
import type { Signal } from '../../src/mesh/cancel.ts'
import { sleepOn, type Cancel, type Clock, type Millis } from '../../src/mesh/clock.ts'

interface Timer {
  readonly at: Millis
  readonly task: () => void
}

/** A clock that stands still until `advance`. */
export class ManualClock implements Clock {
  readonly isReal = false
  readonly #timers = new Set<Timer>()
  readonly #epoch: Millis
  #now: Millis = 0

  /** `epoch`: wall time at the start, in milliseconds since 1970. */
  constructor(epoch: Millis = Date.UTC(2026, 0, 1)) {
    this.#epoch = epoch
  }

  get pending(): number {
    return this.#timers.size
  }

  now(): Millis {
    return this.#now
  }

  wall(): Millis {
    return this.#epoch + this.#now
  }

  after(ms: Millis, task: () => void): Cancel {
    const timer = { at: this.#now + ms, task }
    this.#timers.add(timer)
    return () => void this.#timers.delete(timer)
  }

  sleep(ms: Millis, signal: Signal): Promise<void> {
    return sleepOn(this, ms, signal)
  }

  /** Runs all timers due within `ms`, in order; follow-ups of a timer get a turn before the next timer. */
  async advance(ms: Millis): Promise<void> {
    const until = this.#now + ms
    for (;;) {
      const due = [...this.#timers].filter(({ at }) => at <= until).sort((a, b) => a.at - b.at)[0]
      if (due === undefined) break
      this.#timers.delete(due)
      this.#now = due.at
      due.task()
      await setImmediate()
    }
    this.#now = until
    await setImmediate()
  }
}
