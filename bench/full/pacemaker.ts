/** A thread that says when calls are due: timers of Node are late by up to a millisecond, a thread that sleeps by some 0.1 ms. */
import { parentPort, workerData } from 'node:worker_threads'

/** When to say it, on `monotonicMs`, rising. */
export type Beat = Float64Array

/** A clock that all threads share, in milliseconds: `performance.now()` counts from the start of its own thread. */
export const monotonicMs = (): number => Number(process.hrtime.bigint()) / 1e6

if (parentPort !== null) {
  const due = workerData as Beat
  const bed = new Int32Array(new SharedArrayBuffer(4))
  for (let count = 0; count < due.length;) {
    const leftMs = due[count]! - monotonicMs()
    if (leftMs > 0) Atomics.wait(bed, 0, 0, leftMs)
    const now = monotonicMs()
    const before = count
    while (count < due.length && due[count]! <= now) count++
    // How many are due by now.
    if (count > before) parentPort.postMessage(count)
  }
}
