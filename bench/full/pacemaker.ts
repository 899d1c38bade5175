/** A thread that reports due times: Node's timers are up to a millisecond late, a sleeping thread some 0.1 ms. */
import { parentPort, workerData } from 'node:worker_threads'

/** Due times on `monotonicMs`, ascending. */
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
    // Number of calls due so far.
    if (count > before) parentPort.postMessage(count)
  }
}
