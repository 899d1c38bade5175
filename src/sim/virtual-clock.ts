import { type Cancel, type Clock, type Millis, nextTurn, sleepOn } from '../mesh/clock.ts'
import type { Signal } from '../mesh/cancel.ts'

interface Timer {
  readonly at: Millis
  /** Among timers of one instant, the one that was set first comes first. */
  readonly order: number
  /** Undefined once it was run, or taken back. */
  task: (() => void) | undefined
}

/** So many timers are run between two turns of the event loop: whoever shows progress needs one now and then. */
const PER_TURN = 20_000

/** Timers that were taken back are cleared away once there are so many, and more than others. */
const MANY = 256

/**
 * Time that passes only when nothing is left to do at its present instant: what a timer sets off, with all promises that hang on
 * it, is over before the next one is due. An hour takes as long as what happens in it, and a run is the same every time.
 */
export class VirtualClock implements Clock {
  readonly isReal = false
  readonly #epoch: Millis
  #timers: Timer[] = []
  /** How many of them were taken back. */
  #takenBack = 0
  #now: Millis = 0
  #set = 0

  /** `epoch`: the wall time at which it begins, in milliseconds since 1970. */
  constructor(epoch: Millis = Date.UTC(2026, 0, 1)) {
    this.#epoch = epoch
  }

  /** Timers that are set; those that were taken back count until they are cleared away, or would have been due. */
  get pending(): number {
    return this.#timers.length
  }

  now(): Millis {
    return this.#now
  }

  wall(): Millis {
    return this.#epoch + this.#now
  }

  after(ms: Millis, task: () => void): Cancel {
    const timer: Timer = { at: this.#now + Math.max(0, ms), order: this.#set++, task }
    // Never, and so nothing that time could pass for.
    if (timer.at === Infinity) return () => undefined
    this.#push(timer)
    return () => this.#takeBack(timer)
  }

  sleep(ms: Millis, signal: Signal): Promise<void> {
    return sleepOn(this, ms, signal)
  }

  /**
   * Lets time pass until `work` is settled, and settles like it. Rejects when nothing is left that could ever settle it. Timers
   * that are left over stay as they are.
   */
  run<Result>(work: Promise<Result>): Promise<Result> {
    return new Promise((resolve, reject) => {
      let isOver = false
      work.then(resolve, reject).finally(() => (isOver = true))
      let steps = 0
      const step = (): void => {
        if (isOver) return
        const timer = this.#pop()
        if (timer === undefined) return reject(new Error('nothing is left that could happen'))
        this.#now = timer.at
        const { task } = timer
        timer.task = undefined
        task?.()
        if (++steps % PER_TURN > 0) void SETTLED.then(whenIdle)
        else void nextTurn().then(whenIdle)
      }
      // Node runs ticks when no promise is left that could go on.
      const whenIdle = () => process.nextTick(step)
      void SETTLED.then(whenIdle)
    })
  }

  #takeBack(timer: Timer): void {
    if (timer.task === undefined) return
    timer.task = undefined
    if (++this.#takenBack < MANY || 2 * this.#takenBack < this.#timers.length) return
    // In their order, they are a heap.
    this.#timers = this.#timers
      .filter(({ task }) => task !== undefined)
      .sort((a, b) => (isBefore(a, b) ? -1 : 1))
    this.#takenBack = 0
  }

  /** The next timer that was not taken back. */
  #pop(): Timer | undefined {
    const timers = this.#timers
    for (;;) {
      const first = timers[0]
      const last = timers.pop()
      if (first === undefined || last === undefined) return undefined
      if (timers.length > 0) this.#sink(last)
      if (first.task !== undefined) return first
      this.#takenBack--
    }
  }

  /** A binary heap: no timer is due before the one above it. */
  #push(timer: Timer): void {
    const timers = this.#timers
    let at = timers.push(timer) - 1
    while (at > 0) {
      const above = (at - 1) >> 1
      if (!isBefore(timer, timers[above]!)) break
      timers[at] = timers[above]!
      at = above
    }
    timers[at] = timer
  }

  /** Puts a timer in the place of the first one. */
  #sink(timer: Timer): void {
    const timers = this.#timers
    let at = 0
    for (;;) {
      let below = 2 * at + 1
      if (below >= timers.length) break
      if (below + 1 < timers.length && isBefore(timers[below + 1]!, timers[below]!)) below++
      if (!isBefore(timers[below]!, timer)) break
      timers[at] = timers[below]!
      at = below
    }
    timers[at] = timer
  }
}

const SETTLED = Promise.resolve()

const isBefore = (one: Timer, other: Timer): boolean =>
  one.at < other.at || (one.at === other.at && one.order < other.order)
