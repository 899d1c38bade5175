import type { Signal } from './cancel.ts'

/** A duration, or a point on the monotonic clock, in milliseconds. */
export type Millis = number

/** Takes a pending timer back. Safe to call twice. */
export type Cancel = () => void

/** All time there is. Everything that waits or measures takes it from here, so that tests never sleep. */
export interface Clock {
  /** Whether it is the machine's time, which libraries with timers of their own keep as well. */
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

/** `sleep` made of `after`: the same for every clock. */
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

/** Longest time that a timer of Node takes, in milliseconds. */
export const LONGEST_TIMER_MS: Millis = 2 ** 31 - 1

/** A timer that is later than this comes from an event loop that stood still, in milliseconds. */
export const LATE_MS: Millis = 100

/**
 * The machine's clock. Node keeps timers of equal duration in one list behind one libuv timer,
 * which is the timer wheel that calls with a few distinct timeouts need.
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
      // After a loop that stood still Node runs timers first: a limit would end what was answered long ago. So that is read before, and
      // what waits for the end of the turn is done.
      turn = setImmediate(() => (turn = setImmediate(task)))
    }
    // Node cuts fractions off, and libuv counts from the whole millisecond that now is in: both make a timer early.
    const timer = setTimeout(due, Math.min(LONGEST_TIMER_MS, Math.ceil(ms) + 1))
    timer.unref()
    return () => {
      clearTimeout(timer)
      clearImmediate(turn)
    }
  },
  sleep: (ms, signal) => sleepOn(systemClock, ms, signal),
}

/** Resolves when the event loop has served everything else once. Not a matter of time: the same for every clock. */
export function nextTurn(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve))
}

/** Runs `task` when the event loop has read what there was to read, in the same turn of it. It must not throw. */
export function endOfTurn(task: () => void): void {
  setImmediate(task)
}

/** Resolves after a while of real time, in milliseconds, whatever clock is used: the event loop is real. */
export function pause(ms: Millis): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms))
}

/** So often a timer fires that does nothing but keep the process alive, in milliseconds. */
const KEEP_ALIVE_MS: Millis = 60_000

/** Keeps the process alive until it is cancelled: timers of the clock do not. */
export function keepAlive(): Cancel {
  const timer = setInterval(() => undefined, KEEP_ALIVE_MS)
  return () => clearInterval(timer)
}

/** How many small things are done in one turn of the event loop, where there may be thousands of them. */
const PER_TURN = 256

/**
 * Does something with each of many, the first of them at once, and gives everything else its turn after each `perTurn` of them: so
 * many as take about a millisecond.
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
