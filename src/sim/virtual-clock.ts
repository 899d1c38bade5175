import { type Cancel, type Clock, type Millis, nextTurn, sleepOn } from '../mesh/clock.ts'
import type { Signal } from '../mesh/cancel.ts'

interface Timer {
  readonly at: Millis
  /** Sequence number of the timer. Timers of the same instant run in this order. */
  readonly order: number
  /** The task; undefined after it has run or was cancelled. */
  task: (() => void) | undefined
}

/** Maximum number of timers run per turn of the event loop. Progress is shown between two turns. */
const PER_TURN = 20_000

/** Cancelled timers are removed when there are at least this many, and more of them than active timers. */
const MANY = 256

/**
 * A clock whose time advances only when no work is left at the current time. All promises that depend on a timer settle
 * before the next timer runs. An hour takes only the time of its events, and every run is the same.
 */
export class VirtualClock implements Clock {
  readonly isReal = false
  readonly #epoch: Millis
  #timers: Timer[] = []
  #takenBack = 0
  #now: Millis = 0
  #set = 0

  /** `epoch`: wall time at the start, in milliseconds since 1970. */
  constructor(epoch: Millis = Date.UTC(2026, 0, 1)) {
    this.#epoch = epoch
  }

  /** Number of timers, including cancelled timers that are not yet removed. */
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
    // A timer at infinity is never due, so it is not stored.
    if (timer.at === Infinity) return () => undefined
    this.#push(timer)
    return () => this.#takeBack(timer)
  }

  sleep(ms: Millis, signal: Signal): Promise<void> {
    return sleepOn(this, ms, signal)
  }

  /**
   * Advances the time until `work` settles, and settles with the same result. Rejects when no timer is left and `work`
   * has not settled. Other timers stay set.
   */
  run<Result>(work: Promise<Result>): Promise<Result> {
    return new Promise((resolve, reject) => {
      let isOver = false
      work.then(resolve, reject).finally(() => (isOver = true))
      let steps = 0
      const step = (): void => {
        if (isOver) return
        const timer = this.#pop()
        if (timer === undefined) return reject(new Error('no timer is left, but the work has not settled'))
        this.#now = timer.at
        const { task } = timer
        timer.task = undefined
        task?.()
        if (++steps % PER_TURN > 0) void SETTLED.then(whenIdle)
        else void nextTurn().then(whenIdle)
      }
      // Node runs `nextTick` callbacks only when no promise can continue.
      const whenIdle = () => process.nextTick(step)
      void SETTLED.then(whenIdle)
    })
  }

  #takeBack(timer: Timer): void {
    if (timer.task === undefined) return
    timer.task = undefined
    if (++this.#takenBack < MANY || 2 * this.#takenBack < this.#timers.length) return
    // The list is sorted, and a sorted list is a valid heap.
    this.#timers = this.#timers
      .filter(({ task }) => task !== undefined)
      .sort((a, b) => (isBefore(a, b) ? -1 : 1))
    this.#takenBack = 0
  }

  /** Removes and returns the next timer that is not cancelled; undefined without one. */
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

  /** Adds a timer to a binary heap: no timer is due before its parent. */
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

  /** Replaces the first timer of the heap by another timer, and restores the order. */
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
