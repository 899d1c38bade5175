import { Worker } from 'node:worker_threads'
import { systemClock } from '../../src/mesh/clock.ts'
import { createKeyedRandom } from '../../src/mesh/keyed-random.ts'
import { script } from '../middle.ts'
import { quantile } from '../statistics.ts'
import { monotonicMs, type Beat } from './pacemaker.ts'

/** Calls at a rate independent of the speed of answers. */
export interface Pace {
  readonly perSecond: number
  readonly forMs: number
  /** Seed of the arrival times; the same for all rows of a round. */
  readonly seed: number
}

/** Latencies from the due times of calls. */
export interface Paced {
  readonly calls: number
  readonly p50Ms: number
  readonly p99Ms: number
  /** Delay of calls with a free session after their due time: the load's own share of the figures. */
  readonly lateP99Ms: number
}

/** A row without all answers after this many times the window does not hold the rate. */
const GIVE_UP_AFTER = 2
const LEAD_MS = 100

/** Makes the calls of a window; `call` makes a call by a free caller. Undefined if the rate was not held. */
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

/**
 * Returns arrivals of an open load, in milliseconds from the start: a Poisson process with `perSecond` in the long run,
 * over `forMs`. The same seed gives the same arrivals.
 */
export function arrivals(perSecond: number, forMs: number, seed: number): Float64Array {
  const random = createKeyedRandom(seed)
  const due: number[] = []
  const meanGapMs = 1_000 / perSecond
  let at = 0
  for (;;) {
    at -= Math.log(1 - random(String(due.length), 'arrival')) * meanGapMs
    if (at >= forMs) return Float64Array.from(due)
    due.push(at)
  }
}

/**
 * Calls with due times, made by callers with one call at a time each. A call without a free caller waits, and its
 * latency runs. So a slow server gets the same load as from independent agents (no coordinated omission).
 */
export class Turns<Caller> {
  readonly #due: ArrayLike<number>
  readonly #now: () => number
  readonly #call: (caller: Caller) => Promise<void>
  readonly #free: Caller[]
  readonly #latencies: Float64Array
  #arrived = 0
  #begun = 0
  #over = 0
  #resolve: (latencies: Float64Array | undefined) => void = () => {}
  #reject: (error: unknown) => void = () => {}
  #isGivenUp = false

  /** Latencies from due times, in order; undefined after `giveUp`. Rejects with the first failed call. */
  readonly latencies = new Promise<Float64Array | undefined>((resolve, reject) => {
    this.#resolve = resolve
    this.#reject = reject
  })

  /** `due` and `now` use the same clock, in milliseconds. */
  constructor(
    callers: readonly Caller[],
    due: ArrayLike<number>,
    now: () => number,
    call: (caller: Caller) => Promise<void>,
  ) {
    this.#free = [...callers]
    this.#due = due
    this.#now = now
    this.#call = call
    this.#latencies = new Float64Array(due.length)
    this.#next()
  }

  /** `count` calls are due so far; each is sent or queued. Returns whether a newly due call found a free caller. */
  arrived(count: number): boolean {
    const waiting = this.#arrived - this.#begun
    const isPrompt = this.#free.length >= waiting + count - this.#arrived
    this.#arrived = count
    this.#next()
    return isPrompt
  }

  /** Stops making calls, and waits for calls under way. */
  giveUp(): void {
    this.#isGivenUp = true
    this.#next()
  }

  #next(): void {
    while (this.#begun < this.#arrived && this.#free.length > 0 && !this.#isGivenUp)
      void this.#make(this.#free.shift()!, this.#begun++)
    if (this.#over === this.#due.length) this.#resolve(this.#latencies)
    else if (this.#isGivenUp && this.#over === this.#begun) this.#resolve(undefined)
  }

  async #make(caller: Caller, index: number): Promise<void> {
    try {
      await this.#call(caller)
    } catch (error) {
      return this.#reject(error)
    }
    this.#latencies[index] = this.#now() - this.#due[index]!
    this.#over++
    this.#free.push(caller)
    this.#next()
  }
}
