/** A thread that says when calls are due: timers of Node are late by up to a millisecond, a thread that sleeps by some 0.1 ms. */
import { parentPort, workerData } from 'node:worker_threads'

export interface Beat {
  /** In milliseconds from `startAt`, rising. */
  readonly due: Float64Array
  /** On `monotonicMs`. */
  readonly startAt: number
}

/** A clock that all threads share, in milliseconds: `performance.now()` counts from the start of its own thread. */
export const monotonicMs = (): number => Number(process.hrtime.bigint()) / 1e6

if (parentPort !== null) {
  const { due, startAt } = workerData as Beat
  const bed = new Int32Array(new SharedArrayBuffer(4))
  for (let next = 0; next < due.length;) {
    const leftMs = startAt + due[next]! - monotonicMs()
    if (leftMs > 0) Atomics.wait(bed, 0, 0, leftMs)
    const now = monotonicMs() - startAt
    const before = next
    while (next < due.length && due[next]! <= now) next++
    // How many are due by now.
    if (next > before) parentPort.postMessage(next)
  }
}
