import { once } from 'node:events'
import { Worker } from 'node:worker_threads'
import { nextTurn } from '../mesh/clock.ts'
import type { UnitSample } from './samples.ts'

/** A message to a thread over units: some more units, or that these were all. */
export type UnitMessage = { readonly units: readonly UnitSample[] } | 'whole'

/** Most units that are copied to a thread in one turn of the event loop: it takes a millisecond or two. */
const UNITS_A_TURN = 1_000

/** Most memory that a thread may take, in megabytes: a report of 50,000 units with 32 durations each takes about 150. */
const MAX_HEAP_MB = 512

/**
 * Returns the answer of a new thread, which gets its units in portions. Rejects when the thread fails. `workerData`: other data
 * that the thread needs.
 */
export async function askThread<Answer>(
  url: URL,
  workerData: object,
  units: readonly UnitSample[],
): Promise<Answer> {
  const worker = new Worker(url, { workerData, resourceLimits: { maxOldGenerationSizeMb: MAX_HEAP_MB } })
  const answered = once(worker, 'message') as Promise<[Answer]>
  // A failure before the answer is waited for is thrown by the `await` below.
  answered.catch(() => undefined)
  const send = (message: UnitMessage) => worker.postMessage(message)
  try {
    for (let at = 0; at < units.length; at += UNITS_A_TURN) {
      send({ units: units.slice(at, at + UNITS_A_TURN) })
      await nextTurn()
    }
    send('whole')
    const [answer] = await answered
    return answer
  } finally {
    await worker.terminate()
  }
}
