import type { Signal } from './cancel.ts'

/** A duration, or a point on the monotonic clock, in milliseconds. */
export type Millis = number

/** Cancels a pending timer. Safe to call twice. */
export type Cancel = () => void

/** The only source of time, for everything that waits or measures, so that tests never sleep. */
export interface Clock {
  /** True for the machine's clock, which libraries with their own timers also use; false for a simulated clock. */
  readonly isReal: boolean
  /** Monotonic milliseconds; only differences mean something. */
  now(): Millis
  /** Milliseconds since the Unix epoch, for people and for dates on the wire. */
  wall(): Millis
  /** Runs `task` once, `ms` from now (range: 0 … 2^31−1) or later, never earlier. Never keeps the process alive. */
  after(ms: Millis, task: () => void): Cancel
  /** Resolves `ms` from now; rejects with `signal.reason` as soon as `signal` aborts. */
  sleep(ms: Millis, signal: Signal): Promise<void>
}

/** Implements `sleep` with `after`, for every clock. */
export function sleepOn(clock: Pick<Clock, 'after'>, ms: Millis, signal: Signal): Promise<void> {
  return new Promise((resolve, reject) => {
    if (signal.aborted) return reject(signal.reason)
    const aborted = () => {
      cancel()
      reject(signal.reason)
    }
    const cancel = clock.after(ms, () => {
      signal.removeEventListener('abort', aborted)
      resolve()
    })
    signal.addEventListener('abort', aborted, { once: true })
  })
}

/** Longest delay of a Node timer, in milliseconds. */
export const LONGEST_TIMER_MS: Millis = 2 ** 31 - 1

/** A timer that fires this late shows that the event loop was blocked; in milliseconds. */
export const LATE_MS: Millis = 100

/**
 * The machine's clock. Node keeps timers of equal duration in one list behind one libuv timer: a timer wheel, as needed
 * by calls with a few distinct timeouts.
 */
export const systemClock: Clock = {
  isReal: true,
  now: () => performance.now(),
  wall: () => Date.now(),
  after(ms, task) {
    const dueAt = performance.now() + ms
    let turn: NodeJS.Immediate | undefined
    const due = () => {
      if (performance.now() - dueAt < LATE_MS) return task()
      // After a blocked event loop Node runs timers first, so a timeout would end calls whose answers came long ago.
      // The first `setImmediate` lets the loop read the answers, the second runs the work at the end of the turn.
      turn = setImmediate(() => (turn = setImmediate(task)))
    }
    // Node truncates fractions, and libuv counts from the start of the current millisecond: both make a timer early.
    const timer = setTimeout(due, Math.min(LONGEST_TIMER_MS, Math.ceil(ms) + 1))
    timer.unref()
    return () => {
      clearTimeout(timer)
      clearImmediate(turn)
    }
  },
  sleep: (ms, signal) => sleepOn(systemClock, ms, signal),
}

/**
 * Resolves after the event loop has served everything else once. Uses the real event loop, even in tests with a
 * simulated clock.
 */
export function nextTurn(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve))
}

/** Runs `task` in the same turn, after the event loop has read all pending input. `task` must not throw. */
export function endOfTurn(task: () => void): void {
  setImmediate(task)
}

/** Resolves after `ms` milliseconds of real time, even in tests with a simulated clock. */
export function pause(ms: Millis): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms))
}

/** Interval of the timer that keeps the process alive, in milliseconds. */
const KEEP_ALIVE_MS: Millis = 60_000

/** Keeps the process alive until the returned function is called. Timers of a `Clock` do not keep it alive. */
export function keepAlive(): Cancel {
  const timer = setInterval(() => undefined, KEEP_ALIVE_MS)
  return () => clearInterval(timer)
}

/** Most small tasks to run in one turn of the event loop. */
const PER_TURN = 256

/**
 * Runs `task` for each item, the first at once, and yields to the event loop after each `perTurn` items. Choose
 * `perTurn` so that the tasks take about a millisecond.
 */
export async function inTurns<Item>(
  items: Iterable<Item>,
  task: (item: Item) => void,
  perTurn = PER_TURN,
): Promise<void> {
  let done = 0
  for (const item of items) {
    if (done > 0 && done % perTurn === 0) await nextTurn()
    task(item)
    done++
  }
}
