import { Worker } from 'node:worker_threads'
import { systemClock } from '../../src/mesh/clock.ts'
import { script } from '../middle.ts'
import { quantile } from '../statistics.ts'
import { arrivals } from './arrivals.ts'
import { monotonicMs, type Beat } from './pacemaker.ts'
import { Turns } from './turns.ts'

/** Calls at a rate that does not depend on how fast they are answered. */
export interface Pace {
  readonly perSecond: number
  readonly forMs: number
  /** Of the moments at which calls arrive: the same for all rows of a round. */
  readonly seed: number
}

/** How long calls took, counted from when they were due. */
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

/** Makes the calls of a window; `call` makes one by a free caller. Undefined where the rate was not held. */
export async function pace<Caller>(
  callers: readonly Caller[],
  { perSecond, forMs, seed }: Pace,
  call: (caller: Caller) => Promise<void>,
): Promise<Paced | undefined> {
  const startAt = monotonicMs() + LEAD_MS
  const due = arrivals(perSecond, forMs, seed).map((at) => startAt + at)
  const turns = new Turns(callers, due, monotonicMs, call)
  const late: number[] = []
  const worker = new Worker(script('./full/pacemaker.js'), { workerData: due satisfies Beat })
  worker.on('message', (count: number) => {
    const now = monotonicMs()
    if (turns.arrived(count)) late.push(now - due[count - 1]!)
  })
  const cancel = systemClock.after(forMs * GIVE_UP_AFTER + LEAD_MS, () => turns.giveUp())
  const latencies = await turns.latencies.finally(() => {
    cancel()
    return worker.terminate()
  })
  if (latencies === undefined) return undefined
  latencies.sort()
  late.sort((left, right) => left - right)
  return {
    calls: due.length,
    p50Ms: quantile(latencies, 0.5),
    p99Ms: quantile(latencies, 0.99),
    lateP99Ms: quantile(late, 0.99),
  }
}
