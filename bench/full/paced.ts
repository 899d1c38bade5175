import { Worker } from 'node:worker_threads'
import { systemClock } from '../../src/mesh/clock.ts'
import { script } from '../middle.ts'
import { quantile } from '../statistics.ts'
import { arrivals } from './arrivals.ts'
import { monotonicMs, type Beat } from './pacemaker.ts'

/** Calls at a rate that does not depend on how fast they are answered. */
export interface Pace {
  readonly perSecond: number
  readonly forMs: number
  /** Of the moments at which calls arrive: the same for all rows of a round. */
  readonly seed: number
}

/** How long calls took, counted from when they were due: one that finds no free session waits for one on the clock. */
export interface Paced {
  readonly calls: number
  readonly p50Ms: number
  readonly p99Ms: number
  /** How much after its time a call was sent that found a free session: what of the figures is the load's own. */
  readonly lateP99Ms: number
}

/** A row that has not answered after so many times the length of the window does not hold the rate. */
const GIVE_UP_AFTER = 2
const LEAD_MS = 100

/** Makes the calls of a window; `call` makes one of a free caller. Undefined where the rate was not held. */
export async function pace<Caller>(
  callers: readonly Caller[],
  { perSecond, forMs, seed }: Pace,
  call: (caller: Caller) => Promise<void>,
): Promise<Paced | undefined> {
  const due = arrivals(perSecond, forMs, seed)
  const startAt = monotonicMs() + LEAD_MS
  const worker = new Worker(script('./full/pacemaker.js'), { workerData: { due, startAt } satisfies Beat })
  const free = [...callers]
  const latencies = new Float64Array(due.length)
  const late: number[] = []
  let arrived = 0
  let begun = 0
  let over = 0
  let isGivenUp = false
  const cancel = systemClock.after(forMs * GIVE_UP_AFTER + LEAD_MS, () => (isGivenUp = true))
  try {
    await new Promise<void>((resolve, reject) => {
      const isDone = () => over === (isGivenUp ? begun : due.length)
      const begin = () => {
        while (begun < arrived && free.length > 0 && !isGivenUp) void make(free.shift()!, begun++)
        if (isDone()) resolve()
      }
      const make = async (caller: Caller, index: number) => {
        const dueAt = startAt + due[index]!
        try {
          await call(caller)
        } catch (error) {
          reject(error)
        }
        latencies[index] = monotonicMs() - dueAt
        over++
        free.push(caller)
        begin()
      }
      worker.once('error', reject)
      worker.on('message', (now: number) => {
        const isSent = free.length > now - begun
        if (isSent) late.push(monotonicMs() - startAt - due[now - 1]!)
        arrived = now
        begin()
      })
      if (due.length === 0) resolve()
    })
  } finally {
    cancel()
    await worker.terminate()
  }
  if (isGivenUp) return undefined
  latencies.sort()
  late.sort((left, right) => left - right)
  const of = (share: number) => quantile(latencies, share)
  return { calls: due.length, p50Ms: of(0.5), p99Ms: of(0.99), lateP99Ms: quantile(late, 0.99) }
}
