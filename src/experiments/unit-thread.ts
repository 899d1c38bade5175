import { once } from 'node:events'
import { Worker } from 'node:worker_threads'
import { nextTurn } from '../mesh/clock.ts'
import type { UnitSample } from './samples.ts'

/** A message to a thread: more units, or `whole` after the last units. */
export type UnitMessage = { readonly units: readonly UnitSample[] } | 'whole'

/** Units copied to a thread in one turn of the event loop, in a millisecond or two. */
const UNITS_A_TURN = 1_000

/** Heap limit of a thread in megabytes: a report of 50,000 units with 32 durations each takes about 150. */
const MAX_HEAP_MB = 512

/** Sends `workerData` and then the units to a new thread; returns its answer. Rejects when the thread fails. */
export async function askThread<Answer>(
  url: URL,
  workerData: object,
  units: readonly UnitSample[],
): Promise<Answer> {
  const worker = new Worker(url, { workerData, resourceLimits: { maxOldGenerationSizeMb: MAX_HEAP_MB } })
  const answered = once(worker, 'message') as Promise<[Answer]>
  // The `await` below throws an earlier failure.
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
