import { Worker } from 'node:worker_threads'
import { systemClock } from '../../src/mesh/clock.ts'
import { createKeyedRandom } from '../../src/mesh/keyed-random.ts'
import { script } from '../middle.ts'
import { quantile } from '../statistics.ts'
import { monotonicMs, type Beat } from './pacemaker.ts'

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

/**
 * When calls arrive that nobody coordinates, in milliseconds from the beginning: at random, independently of each other (a Poisson
 * process), `perSecond` of them in the long run, over `forMs`. The same seed gives the same arrivals.
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
 * Calls that are due at moments of their own, made by callers of which each makes one at a time. One that finds no free caller waits for
 * one, and its time runs: so the load of a slow server is not spared what it would have got from agents that do not wait.
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

  /** How long each call took from when it was due, in their order; undefined when that was given up. Rejects with the first that fails. */
  readonly latencies = new Promise<Float64Array | undefined>((resolve, reject) => {
    this.#resolve = resolve
    this.#reject = reject
  })

  /** `due` and `now` are of one clock, in milliseconds. */
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

  /** So many calls are due by now, of which each is made or waits; returns whether one that came now found a free caller. */
  arrived(count: number): boolean {
    const waiting = this.#arrived - this.#begun
    const isPrompt = this.#free.length >= waiting + count - this.#arrived
    this.#arrived = count
    this.#next()
    return isPrompt
  }

  /** Makes no more calls, and waits for those that are under way. */
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
